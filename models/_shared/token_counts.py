"""How a CLIP text encoder cuts a caption, by the `tokenizers` library alone: without torch and transformers.

transformers' CLIPTokenizer is a byte-level BPE around four things that a folder says: vocabulary, merges, added tokens
and length. The same is built here from the same files by the same rules, so that the ids are equal (tests compare
them). Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.core.errors import UserError
from trainers.core.facts import Facts, TextLimit

from .architecture import TOKENIZER_OF_PART
from .clip_tokenizer import END, START, VOCABULARY_FILES, WORD_END, published_merges, vocabulary_of
from .resolve import local_place, read_json
from .single_file_facts import configs_beside

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE

_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_USUAL = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}


class TokenCounter:
    """Counts the tokens of captions as one text encoder gets them; the tokenizer is read at the first caption."""

    def __init__(self, folder: Path, limit: TextLimit) -> None:
        """Count by the tokenizer of `folder`; `limit` is what holds where the folder states no length."""
        self._folder, self._limit = folder, limit

    @cached_property
    def fits(self) -> int:
        """How many tokens fit beside the start and end marks."""
        return int(_settings(self._folder).get("model_max_length", self._limit.tokens)) - self._limit.special

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return read_tokenizer(self._folder)

    def __call__(self, caption: str) -> tuple[int, int]:
        """Return (tokens the caption has, tokens that fit), without the start and end marks."""
        return len(self.ids(caption)), self.fits

    def ids(self, caption: str) -> list[int]:
        """Return the ids of the whole caption, without the start and end marks."""
        return list(self._tokenizer.encode(caption, add_special_tokens=False).ids)

    def shown(self, caption: str) -> tuple[str, str]:
        """Return (what the encoder sees, what it never sees); together they are the caption.

        A character of several tokens that is cut in its middle counts as not seen.
        """
        offsets = self._tokenizer.encode(caption, add_special_tokens=False).offsets
        if len(offsets) <= self.fits:
            return caption, ""
        place = offsets[self.fits][0]
        return caption[:place], caption[place:]


def clip_counters(weights: str, facts: Facts, configs: Path) -> dict[str, TokenCounter]:
    """Return encoder -> counter for a family of CLIP text encoders.

    Local weights are counted by their own tokenizers; hub ids, and weights that have none, by those in `configs`.
    Nothing is downloaded, and a path that does not exist is no error here: who loads the weights will say so.
    """
    place = _folder_of(weights)
    counters = {}
    for limit in facts.text_limits:
        name = TOKENIZER_OF_PART[limit.encoder]
        own = place is not None and (place / name).is_dir()
        counters[limit.encoder] = TokenCounter((place if own and place else configs) / name, limit)
    return counters


def _folder_of(weights: str) -> Path | None:
    """Return where the tokenizers of local weights would lie."""
    try:
        place = local_place(weights)
    except UserError:
        return None
    return place if place is None or place.is_dir() else configs_beside(place)


def read_tokenizer(folder: Path) -> Tokenizer:
    """Build the tokenizer of a folder; one with settings but no vocabulary gets CLIP's published one."""
    settings = _settings(folder)
    try:
        if not any((folder / name).exists() for name in VOCABULARY_FILES):
            return _assemble(_published_model(), {**_USUAL, "pad_token": settings["pad_token"]}, {})
        return _assemble(_read_model(folder), *_tokens_of(folder, settings))
    except UserError:
        raise
    except Exception as error:  # the library has no class of its own for files that it can't read
        what = f"this tokenizer can't be read: {error}"
        raise UserError(what, where=str(folder), remedy="take the folder from the original model again") from error


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


@lru_cache(maxsize=1)
def _published_model() -> BPE:
    """Build CLIP's published BPE once: encoders that pad differently share it."""
    merges = published_merges()
    return _model(vocabulary_of(merges), merges)


def _read_model(folder: Path) -> BPE:
    """Read vocabulary and merges; tokenizer.json goes before the two older files."""
    from tokenizers.models import BPE

    whole = folder / "tokenizer.json"
    if whole.is_file():
        model = read_json(whole)["model"]
        merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
        return _model(model["vocab"], merges)
    vocabulary, pairs = BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    return _model(vocabulary, pairs)


def _model(vocabulary: Mapping[str, int], merges: Any) -> BPE:
    from tokenizers.models import BPE

    return BPE(
        vocab=dict(vocabulary),
        merges=merges,
        continuing_subword_prefix="",
        end_of_word_suffix=WORD_END,
        fuse_unk=False,
        unk_token=END,
    )


def _assemble(model: BPE, named: Mapping[str, Any], listed: Mapping[int, AddedToken]) -> Tokenizer:
    """Put the steps around a BPE: compose, fold blanks, lower case; added tokens whole, words apart; bytes."""
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    added = {str(token): token for _, token in sorted(listed.items())}
    for token in named.values():
        added.setdefault(str(token), AddedToken(token, special=True) if isinstance(token, str) else token)
    specials = {str(token) for token in named.values()}
    for name, token in added.items():
        token.special = token.special or name in specials
    tokenizer.add_tokens(list(added.values()))
    return tokenizer


def _tokens_of(folder: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[int, AddedToken]]:
    """Return (tokens by their role, added tokens by id) as transformers reads them from the files of a folder.

    Newer folders list the added tokens in tokenizer_config.json; else special_tokens_map.json, added_tokens.json and
    tokenizer.json hold them.
    """
    from tokenizers import AddedToken

    stated = {**_USUAL, **settings}
    listed: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in settings:
        listed = {int(number): AddedToken(**token) for number, token in settings["added_tokens_decoder"].items()}
    else:
        for key, token in _optional(folder / "special_tokens_map.json").items():
            stated[key] = AddedToken(**{**token, "special": True}) if isinstance(token, dict) else token
        roles = {_text(stated[key]) for key in _NAMED if stated.get(key)}
        for text, number in _optional(folder / "added_tokens.json").items():
            listed[int(number)] = AddedToken(text, normalized=text not in roles, special=text in roles)
        for token in _optional(folder / "tokenizer.json").get("added_tokens", ()):
            listed[int(token["id"])] = AddedToken(**{key: value for key, value in token.items() if key != "id"})
    by_text = {str(token): token for token in listed.values()}
    roles_in_order = {key: by_text.get(_text(token), token) for key, token in _roles(stated)}
    return roles_in_order, listed


def _roles(stated: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tokens that have a role: the usual ones first, then any further "..._token", then the extra ones."""
    from tokenizers import AddedToken

    others = [key for key in stated if key.endswith("_token") and key not in _NAMED]
    extra = stated.get("extra_special_tokens") or stated.get("additional_special_tokens") or ()
    further = extra.items() if isinstance(extra, dict) else ((f"extra {place}", one) for place, one in enumerate(extra))
    for key, token in (*((key, stated.get(key)) for key in (*_NAMED, *others)), *further):
        if isinstance(token, dict):
            yield key, AddedToken(**{name: value for name, value in token.items() if name != "__type"})
        elif isinstance(token, (str, AddedToken)):
            yield key, token


def _text(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)


def _optional(path: Path) -> dict[str, Any]:
    """Read a JSON object that need not be there."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
