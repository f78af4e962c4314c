"""CLIP tokenizers: the published vocabulary from the bundled merges, a folder's own, or a tiny one made on the spot."""

from __future__ import annotations

import json
import lzma
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

START, END = "<|startoftext|>", "<|endoftext|>"
WORD_END = "</w>"
_MERGES = Path(__file__).with_name("clip_merges.txt.xz")
VOCABULARY_FILES = ("tokenizer.json", "vocab.json")

TINY_CORPUS = (
    "a photo of a cat",
    "a photo of a dog on a red background",
    "a painting of a small blue house in the snow",
    "a drawing of a large green tree, flat colours",
    "one yellow circle at the left, two white squares at the right",
)


def load_tokenizer(folder: Path) -> Any:
    """Load the CLIPTokenizer of a folder; a folder with settings but no vocabulary gets CLIP's published one."""
    from transformers import CLIPTokenizer

    if any((folder / name).exists() for name in VOCABULARY_FILES):
        return CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    return published_tokenizer(pad=settings["pad_token"], length=settings["model_max_length"])


def published_tokenizer(*, pad: str = END, length: int = 77) -> Any:
    """Make CLIP's own tokenizer of 49,408 tokens. Radford et al. 2021. SD 2 and SDXL's second encoder pad with "!"."""
    return _tokenizer(published_merges(), pad=pad, length=length)


def tiny_tokenizer(captions: tuple[str, ...], *, size: int, pad: str = END, length: int = 77) -> Any:
    """Make a tokenizer of CLIP's form with at most `size` tokens that knows the captions' words, first ones first.

    The merges build each word from left to right; any other text is written in bytes.
    """
    merges: dict[tuple[str, str], None] = {}
    for word in dict.fromkeys(re.findall("[a-z]+", " ".join(captions).lower())):
        letters = [*word[:-1], word[-1] + WORD_END]
        for place in range(1, len(letters)):
            merges[("".join(letters[:place]), letters[place])] = None
    return _tokenizer(list(merges)[: size - 2 - 2 * 256], pad=pad, length=length)


def _tokenizer(merges: list[tuple[str, str]], *, pad: str, length: int) -> Any:
    """Make a CLIPTokenizer of CLIP's vocabulary with these merges."""
    from transformers import CLIPTokenizer

    return CLIPTokenizer(
        vocab=vocabulary_of(merges),
        merges=merges,
        bos_token=START,
        eos_token=END,
        unk_token=END,
        pad_token=pad,
        model_max_length=length,
    )


def vocabulary_of(merges: list[tuple[str, str]]) -> dict[str, int]:
    """Number the tokens in CLIP's order: 256 bytes, the same with the end-of-word mark, merges, then start and end."""
    letters = _byte_letters()
    words = [*letters, *(letter + WORD_END for letter in letters), *("".join(pair) for pair in merges), START, END]
    return {word: number for number, word in enumerate(dict.fromkeys(words))}


def _byte_letters() -> list[str]:
    """Return the 256 printable letters that stand for bytes, in the order of CLIP's vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = 256 - len(printable)
    return [chr(code) for code in printable] + [chr(256 + number) for number in range(others)]


@lru_cache(maxsize=1)
def published_merges() -> list[tuple[str, str]]:
    """Read the 48,894 bundled merges (see clip_merges.LICENSE)."""
    lines = lzma.decompress(_MERGES.read_bytes()).decode("utf-8").splitlines()
    return [(first, second) for first, second in (line.split(" ") for line in lines)]
