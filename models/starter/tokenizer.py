"""Trains the starter model's tokenizer on its captions, in CLIP's form.

Byte-level pair encoding with an end-of-word mark: 256 byte symbols, the same with the mark, the merges,
then the start and end tokens. Any text can be written with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import CLIPTokenizer

MAX_LENGTH = 32
MERGES = 1200
END_OF_WORD = "</w>"
START_TOKEN, END_TOKEN = "<|startoftext|>", "<|endoftext|>"
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"

COMMON_TEXT = (
    "the of and to in is it that with at by for from as this are not no one two three small big large "
    "tiny little old new happy sad angry grinning laughing smiling crying kissing scared sleeping "
    "running sitting standing wearing holding photo photograph drawing painting sketch art style image "
    "illustration logo sticker toy person man woman boy girl baby face head eye eyes hair hand body "
    "animal bird plant tree flower food fruit car boat house dark light bright pastel colourful "
    "brown gold silver teal cyan beige navy sky sea grass snow water fire left right top bottom "
    "front back behind under over near simple detailed best quality night day summer winter"
)
"""Ordinary words beside the captions', so that users' own captions stay short."""


def read_captions(folder: Path) -> Iterator[str]:
    """Yield every caption line of a folder, in order of file name."""
    for path in sorted(folder.glob("*.txt")):
        yield from path.read_text(encoding="utf-8").splitlines()


def train_merges(lines: Iterable[str], limit: int = MERGES) -> list[tuple[str, str]]:
    """Return at most ``limit`` merges, most frequent first."""
    tokenizer = Tokenizer(BPE(end_of_word_suffix=END_OF_WORD))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=512 + limit, min_frequency=1, end_of_word_suffix=END_OF_WORD, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(lines, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(left, right) for left, right in merges][:limit]


def make_tokenizer(captions: Path) -> CLIPTokenizer:
    """Train the tokenizer on a folder's captions and a few ordinary words."""
    lines = [*read_captions(captions), *[COMMON_TEXT] * 3]
    merges = train_merges(lines)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    symbols = alphabet + [symbol + END_OF_WORD for symbol in alphabet]
    symbols += dict.fromkeys(left + right for left, right in merges)
    symbols = [*dict.fromkeys(symbols), START_TOKEN, END_TOKEN]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_LENGTH)


def save_tokenizer(tokenizer: CLIPTokenizer, folder: Path) -> None:
    """Save in the present layout and, beside it, as the older ``vocab.json`` and ``merges.txt``."""
    tokenizer.save_pretrained(folder)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = json.dumps(model["vocab"], ensure_ascii=False)
    (folder / "vocab.json").write_text(vocabulary + "\n", encoding="utf-8")
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
