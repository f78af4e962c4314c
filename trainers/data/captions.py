"""What a caption becomes: template, trigger exactly once, and what varies per visit (choice, tag order, tag dropout).

The first half is done once, at the scan; `runtime_caption` is a pure function of (seed, item, visit).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from trainers.core import random

from .config import TEMPLATE_FIELDS, DataConfig
from .items import Item

_PLACEHOLDERS = re.compile(r"\[trigger\]|\{trigger\}", re.IGNORECASE)
_FIRST_UNSPACED = 0x2E80  # from here on scripts are written without spaces, so a word has no border


@dataclass(frozen=True)
class CaptionSettings:
    """What may change from visit to visit."""

    shuffle: bool = False
    keep: int = 0
    dropout: float = 0.0
    separator: str = ","

    @property
    def varies(self) -> bool:
        """Tell whether captions can take more forms than can be cached."""
        return self.shuffle or self.dropout > 0.0


def caption_settings(config: DataConfig) -> CaptionSettings:
    """Take from a [data] section what `runtime_caption` needs."""
    return CaptionSettings(config.shuffle_tags, config.keep_tags, config.tag_dropout, config.tag_separator)


def runtime_caption(item: Item, seed: int, visit: int, settings: CaptionSettings) -> str:
    """Return the caption of one visit. Of n captions each is used once in every n visits, in a keyed order."""
    count = len(item.captions)
    caption = item.captions[0] if count == 1 else item.captions[_turn(item.id, seed, visit, count)]
    return vary_tags(caption, item, seed, visit, settings) if settings.varies else caption


def _turn(item_id: str, seed: int, visit: int, count: int) -> int:
    """Number of the caption at `visit`: rounds of all captions, each round in its own order."""
    order = random.generator(seed, "caption", item_id, visit // count).permutation(count)
    return int(order[visit % count])


def vary_tags(caption: str, item: Item, seed: int, visit: int, settings: CaptionSettings) -> str:
    """Shuffle and drop tags; the first `keep` stay in front, and the tag that holds the trigger is never dropped."""
    tags = [tag for part in caption.split(settings.separator) if (tag := part.strip())]
    kept, rest = tags[: settings.keep], tags[settings.keep :]
    draws = random.generator(seed, "tags", item.id, visit)
    if settings.dropout > 0.0:
        numbers = draws.random(len(rest))
        rest = [
            tag
            for tag, number in zip(rest, numbers, strict=True)
            if number >= settings.dropout or (item.trigger is not None and count_trigger(tag, item.trigger))
        ]
    if settings.shuffle:
        rest = [rest[index] for index in draws.permutation(len(rest))]
    glue = settings.separator if settings.separator.isspace() else f"{settings.separator.strip()} "
    return glue.join(kept + rest)


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Fill {trigger}, {class}, {filename} and {folder}; a part that is empty leaves no gap."""
    return tidy(template.format_map({name: values.get(name, "") for name in TEMPLATE_FIELDS}))


def default_template(trigger: str, class_word: str) -> str:
    """The sentence used where a template is asked for and none is written."""
    if trigger and class_word:
        return "a photo of {trigger} {class}"
    return "a photo of {trigger}" if trigger else "a photo of a {class}"


def words_of_name(stem: str) -> str:
    """Turn a file name into words: "a_red-cat (3)" -> "a red cat"."""
    stem = _readable(stem)
    without_number = re.sub(r"[\s_-]*\(\d+\)$|[\s_-]+\d+$", "", stem)
    return tidy(re.sub(r"[_\s]+|(?<=[^\W\d])-(?=[^\W\d])", " ", without_number)) or tidy(stem)


def _readable(name: str) -> str:
    """Read a name of an old disk, whose bytes are no UTF-8, as the Windows of its time would."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return name


def words_of_folder(name: str) -> str:
    """Turn a folder name into words; a leading "10_" counts repeats in other trainers: "10_jane doe" -> "jane doe"."""
    return words_of_name(re.sub(r"^\d+_(?=.)", "", name))


def tidy(text: str) -> str:
    """Put a text in one line, in composed Unicode, with single spaces and no comma left over by a removed word."""
    text = unicodedata.normalize("NFC", text).replace("\ufeff", "").replace("\x00", "")
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"\s+([,;])", r"\1", text)
    text = re.sub(r"([,;])(?:\s*\1)+", r"\1", text)
    return re.sub(r"^[\s,;]+|[\s,;]+$", "", text)


def one_line(text: str) -> str:
    """Join the lines of a caption by spaces and leave every other character as it was written."""
    text = unicodedata.normalize("NFC", text).replace("\ufeff", "").replace("\x00", "")
    return re.sub(r"\s+", " ", text).strip()


def surround(text: str, prefix: str, suffix: str) -> str:
    """Put a prefix and a suffix around a caption, with a blank between them unless the suffix begins with a comma."""
    glue = "" if suffix.lstrip()[:1] in (",", ".", ";") else " "
    return one_line(f"{prefix} {text}{glue}{suffix.lstrip()}")


def _trigger_pattern(trigger: str) -> re.Pattern[str]:
    """Match the trigger as a whole word, in any case, with any blanks inside."""
    words = r"\s+".join(re.escape(word) for word in trigger.split())
    before = r"(?<!\w)" if _has_border(trigger.strip()[0]) else ""
    after = r"(?!\w)" if _has_border(trigger.strip()[-1]) else ""
    return re.compile(before + words + after, re.IGNORECASE)


def _has_border(letter: str) -> bool:
    """Tell whether a word that ends in this letter is set off from the next word by something."""
    return letter.isalnum() and ord(letter) < _FIRST_UNSPACED


def count_trigger(text: str, trigger: str) -> int:
    """Count how often the trigger stands in a text as a word of its own."""
    return len(_trigger_pattern(trigger).findall(text))


def ensure_trigger(caption: str, trigger: str) -> str:
    """Return the caption with the trigger in it exactly once, spelled as given.

    It stays at its first place, further ones are removed; where it is missing it goes in front.

    >>> ensure_trigger("a dog called Zkw, ZKW, on grass", "zkw")
    'a dog called zkw, on grass'
    >>> ensure_trigger("a dog", "zkw")
    'zkw, a dog'
    """
    trigger = unicodedata.normalize("NFC", " ".join(trigger.split()))
    caption = _PLACEHOLDERS.sub(lambda _: trigger, caption)
    hits = list(_trigger_pattern(trigger).finditer(caption))
    if not hits:
        return f"{trigger}, {caption}" if caption else trigger
    first = hits[0]
    rest = _trigger_pattern(trigger).sub("", caption[first.end() :]) if len(hits) > 1 else caption[first.end() :]
    whole = caption[: first.start()] + trigger + rest
    return tidy(whole) if len(hits) > 1 else whole


def remove_placeholders(caption: str) -> tuple[str, bool]:
    """Take "[trigger]" and "{trigger}" out of a caption that has no trigger word: (caption, whether there was one)."""
    cleaned, count = _PLACEHOLDERS.subn("", caption)
    return (tidy(cleaned), True) if count else (caption, False)
