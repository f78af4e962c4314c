"""Finds the captions of one concept's pictures and completes them by its rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from trainers.core.errors import Problem

from . import captions as text_rules
from .config import Concept
from .items import CaptionState
from .listing import PICTURES, Listing, resolve, some, split
from .metadata import METADATA_NAMES, Metadata, read_metadata, texts_of
from .text import TextError, read_text

_OTHER_ENDINGS = (".txt", ".caption", ".json", ".tags", ".text", ".cap")


@dataclass(frozen=True)
class Captioned:
    """The captions of one picture, complete, and how it came to them."""

    texts: tuple[str, ...]
    state: CaptionState


@dataclass
class ConceptCaptions:
    """The captions of one concept. Ask `of` for each picture, then `conclude` for what is to be said about all."""

    concept: Concept
    trigger: str | None
    listing: Listing
    base: Path
    strict: bool = False
    warnings: list[Problem] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)
    _names: dict[CaptionState, list[str]] = field(default_factory=dict)
    _metadata: dict[str, Metadata] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.concept.captions in ("files", "metadata"):
            self._read_metadata()

    def of(self, name: str) -> Captioned:
        """Return the captions of the picture with this relative name."""
        state, raw = self._raw(name)
        self._names.setdefault(state, []).append(name)
        if state in ("missing", "empty"):
            raw = [self._by_rule(self._rule(), name)]
        return Captioned(tuple(dict.fromkeys(self._complete(text, name) for text in raw)), state)

    def conclude(self) -> None:
        """Add the problem or the warning about pictures without caption, and hints at what may be the cause."""
        empty, missing = self._names.get("empty", []), self._names.get("missing", [])
        if not empty and not missing:
            return
        found = len(self._names.get("found", []))
        what = f"captions: {found} found, {len(empty)} empty, {len(missing)} missing ({some([*empty, *missing])})"
        rule = self._rule()
        where = str(self.listing.folder)
        hints = self._hints(missing)
        if rule == "stop":
            hints.append('write them, or set missing_caption to "trigger", "class", "filename" or "empty"')
            self.errors.append(Problem(where, what, "; ".join(hints)))
            return
        example = self._complete(self._by_rule(rule, (empty + missing)[0]), (empty + missing)[0])
        self.warnings.append(Problem(where, f'{what}; they get "{example}" by the rule "{rule}"', "; ".join(hints)))

    def _read_metadata(self) -> None:
        """Read the metadata file that is named, or those in the folders, each for its own folder."""
        if self.concept.metadata_file is not None:
            path = resolve(self.base, self.concept.metadata_file)
            self._keep_metadata("", read_metadata(path, strict=self.strict))
            return
        for folder in self.listing.names:
            paths = (self.listing.find(folder, name) for name in METADATA_NAMES)
            path_found = next((path for path in paths if path is not None), None)
            if path_found is not None:
                self._keep_metadata(folder, read_metadata(path_found, strict=self.strict))
        if self.concept.captions == "metadata" and not self._metadata:
            remedy = f"put {METADATA_NAMES[0]} there, or name it by metadata_file"
            self.errors.append(Problem(str(self.listing.folder), "has no metadata file", remedy))

    def _keep_metadata(self, folder: str, metadata: Metadata) -> None:
        self._metadata[folder] = metadata
        (self.warnings if metadata.rows else self.errors).extend(metadata.problems)

    def _raw(self, name: str) -> tuple[CaptionState, list[str]]:
        """Return the captions as they were written, or as the concept makes them."""
        source = self.concept.captions
        if source in ("template", "filename", "folder"):
            return "made", [self._by_rule(source, name)]
        path = self._caption_file(name) if source == "files" else None
        raw = self._from_metadata(name) if path is None else self._from_file(path)
        if raw is None:
            return "missing", []
        texts = [line for text in raw for line in self._lines(text)]
        return ("found", texts) if texts else ("empty", [])

    def _caption_file(self, name: str) -> Path | None:
        """Find "cat.txt" or "cat.jpg.txt" beside "cat.jpg"."""
        folder, stem, _ = split(name)
        for ending in self.concept.caption_extensions:
            for candidate in (stem + ending, PurePosixPath(name).name + ending):
                path = self.listing.find(folder, candidate)
                if path is not None:
                    return path
        return None

    def _from_file(self, path: Path) -> list[str]:
        """Read a caption file; what is wrong with it is kept, and it counts as empty."""
        try:
            text, warning = read_text(path, strict=self.strict)
            if warning is not None:
                self.warnings.append(warning)
            if path.suffix.lower() != ".json" or not text.strip():
                return [text]
            texts = texts_of(json.loads(text))
            if texts is None:
                raise TextError('has no caption; it needs "caption", "text" or "tags"')
            return texts
        except TextError as error:
            self.errors.append(Problem(str(path), str(error), "save it again as UTF-8 text"))
        except json.JSONDecodeError as error:
            self.errors.append(Problem(f"{path}:{error.lineno}", f"is no JSON: {error.msg}", "correct or remove it"))
        return []

    def _from_metadata(self, name: str) -> list[str] | None:
        """Look a picture up in the metadata of its folder, then in those of the folders above."""
        parts = PurePosixPath(name).parts
        for depth in range(len(parts) - 1, -1, -1):
            metadata = self._metadata.get("/".join(parts[:depth]))
            texts = None if metadata is None else metadata.of("/".join(parts[depth:]))
            if texts is not None:
                return texts
        return None

    def _lines(self, text: str) -> list[str]:
        """Join the lines of a text, or take each for a caption of its own; blank ones never count."""
        lines = text.splitlines() if self.concept.multi_line == "choose" else [text]
        return [line for line in map(text_rules.one_line, lines) if line]

    def _rule(self) -> str:
        """Settle "auto" to what it means for this concept."""
        concept = self.concept
        if concept.missing_caption != "auto":
            return concept.missing_caption
        if concept.role == "class":
            if concept.prompt is not None:
                return "prompt"
            return "template" if concept.template or concept.class_word else "stop"
        return "stop" if self.trigger is None else "trigger"

    def _by_rule(self, rule: str, name: str) -> str:
        """Make a caption without a file."""
        concept, (_, stem, _) = self.concept, split(name)
        if rule == "template":
            return self._filled(stem, name)
        made = {
            "trigger": f"{self.trigger or ''} {concept.class_word or ''}",
            "class": concept.class_word or "",
            "prompt": concept.prompt or "",
            "filename": text_rules.words_of_name(stem),
            "folder": self._folder_words(name),
        }
        return made.get(rule, "").strip()

    def _filled(self, stem: str, name: str) -> str:
        trigger, class_word = self.trigger or "", self.concept.class_word or ""
        if self.concept.template is None and not trigger and not class_word:
            return self.concept.prompt or ""
        template = self.concept.template or text_rules.default_template(trigger, class_word)
        values = {"trigger": trigger, "class": class_word, "filename": text_rules.words_of_name(stem)}
        return text_rules.fill_template(template, {**values, "folder": self._folder_words(name)})

    def _folder_words(self, name: str) -> str:
        folder = PurePosixPath(name).parent.name or self.listing.folder.name
        return text_rules.words_of_folder(folder)

    def _complete(self, text: str, name: str) -> str:
        """Add what stands around every caption, and see to the trigger."""
        text = text_rules.surround(text, self.concept.prefix, self.concept.suffix)
        if self.trigger is not None:
            return text_rules.ensure_trigger(text, self.trigger)
        text, had_place = text_rules.remove_placeholders(text)
        if had_place and self.concept.role != "class":
            what = "speaks of [trigger], but no trigger is set; the place was removed"
            self.warnings.append(Problem(str(self.listing.path(name)), what, "set data.trigger"))
        return text

    def _hints(self, missing: list[str]) -> list[str]:
        """Name what may be the cause: captions with another ending, or of another name."""
        hints = []
        for ending in _OTHER_ENDINGS:
            if ending in self.concept.caption_extensions or self.concept.captions != "files":
                continue
            count = sum(self.listing.find(split(name)[0], split(name)[1] + ending) is not None for name in missing)
            if count:
                files = f"1 {ending} file exists" if count == 1 else f"{count} {ending} files exist"
                hints.append(f'{files} beside them: add "{ending}" to caption_extensions')
        orphans = self._orphans() if missing else []
        if orphans:
            hints.append(f"{len(orphans)} caption files have the name of no picture ({some(orphans)})")
        return hints

    def _orphans(self) -> list[str]:
        """List caption files that belong to no picture."""
        orphans = []
        for names in self.listing.names.values():
            pictures = {split(name)[1] for name in names if split(name)[2] in PICTURES}
            for folded, written in names.items():
                _, stem, ending = split(folded)
                is_caption = ending in self.concept.caption_extensions and folded not in METADATA_NAMES
                if is_caption and pictures.isdisjoint((stem, split(stem)[1])):
                    orphans.append(written)
        return orphans
