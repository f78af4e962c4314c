"""Counting tokens without transformers gives transformers' ids, from every form in which a tokenizer is kept."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models._shared.clip_tokenizer import END, START, TINY_CORPUS, load_tokenizer, published_merges, tiny_tokenizer
from models._shared.clip_tokenizer import vocabulary_of as numbered
from models._shared.text import count_tokens
from models._shared.token_counts import TokenCounter
from trainers.core import discover
from trainers.core.errors import UserError
from trainers.core.facts import TextLimit

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [
    folder.relative_to(ROOT).as_posix()
    for place in ("configs", "weights")
    for folder in sorted((ROOT / "models").glob(f"*/{place}/tokenizer*"))
    if folder.is_dir()
]
FORMS = ("tiny", "tiny!", "vocab", "vocab!", "legacy", "extra")
CAPTIONS = (
    "", " ", "a photo of a cat", " A  PHOTO of\na\tcat ", "it's, they're; we'd -- \"don't\"!", "!", "!!!", "wow!! a!b",
    "<|startoftext|> a <|endoftext|>", "<|EndOfText|>", "<|endoftext|", "猫 と 犬", "žluť — naïve café", "cafe\u0301",
    "🐈‍⬛👍🏽 ❤️", "ﬁ Å ½ ²", "12345 1girl, 3d_render", "\u200b\u00a0\ufeff", "İstanbul ẞ", "مرحبا بالعالم", "नमस्ते",
    "a" * 300, "cat, " * 80, "\x00 null", "don’t", "zwx_dog-<tok>", "<tok>cat", "\U0001f9ff", "\u0345\u0301",
)  # fmt: skip
LIMIT = TextLimit("text_encoder", 77)
texts = st.text(max_size=120) | st.text("abc !'<|>.,d\n\u0301🐈猫1", max_size=200) | st.sampled_from(CAPTIONS)


@pytest.fixture(scope="session")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokenizer folders as they are met: saved today, of two older files, with settings as first published."""
    base = tmp_path_factory.mktemp("tokenizers")
    for name, pad in (("tiny", END), ("tiny!", "!")):
        tiny_tokenizer(TINY_CORPUS, size=600, pad=pad, length=24).save_pretrained(str(base / name))
    shutil.copytree(base / "tiny!", base / "extra")
    whole = json.loads((base / "extra" / "tokenizer_config.json").read_text("utf-8"))
    whole.pop("added_tokens_decoder", None)
    (base / "extra" / "tokenizer_config.json").write_text(json.dumps(whole), encoding="utf-8")
    (base / "extra" / "added_tokens.json").write_text('{"<tok>": 600}', encoding="utf-8")
    merges = published_merges()[:3000]
    for name, pad in (("vocab", END), ("vocab!", "!"), ("legacy", "!")):
        write_old(base / name, merges, pad, rich=name == "legacy")
    return base


def write_old(folder: Path, merges: list[tuple[str, str]], pad: str, *, rich: bool) -> None:
    """Write vocab.json, merges.txt and settings; `rich` is the form of the models as they were published."""
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(numbered(merges)), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def token(text: str) -> Any:
        return {"content": text, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}

    config: dict[str, Any] = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "pad_token": pad}
    if rich:
        roles = {"bos_token": token(START), "eos_token": token(END), "unk_token": token(END)}
        config |= {key: {"__type": "AddedToken", **value} for key, value in roles.items()}
        special = json.dumps({**roles, "pad_token": pad})
        (folder / "special_tokens_map.json").write_text(special, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


@cache
def both(folder: Path) -> tuple[Any, TokenCounter]:
    return load_tokenizer(folder), TokenCounter(folder, LIMIT)


def folder_of(form: str, forms: Path) -> Path:
    return ROOT / form if form.startswith("models/") else forms / form


@pytest.mark.parametrize("form", [*FOLDERS, *FORMS])
def test_ids_are_those_of_transformers(form: str, forms: Path) -> None:
    theirs, ours = both(folder_of(form, forms))
    for caption in CAPTIONS:
        assert ours.ids(caption) == theirs(caption, add_special_tokens=False, verbose=False).input_ids, repr(caption)
        assert ours(caption) == count_tokens(theirs, caption)


@pytest.mark.parametrize("form", ["models/sd15/configs/tokenizer", "models/sd2/configs/tokenizer", "tiny!", "legacy"])
@settings(max_examples=60, deadline=None)
@given(caption=texts)
def test_any_text_gives_the_ids_of_transformers(form: str, caption: str, forms: Path) -> None:
    theirs, ours = both(folder_of(form, forms))
    assert ours.ids(caption) == theirs(caption, add_special_tokens=False, verbose=False).input_ids


@settings(max_examples=60, deadline=None)
@given(caption=texts)
def test_what_is_seen_and_what_is_cut_are_the_caption(caption: str, forms: Path) -> None:
    _, ours = both(forms / "tiny")
    kept, cut = ours.shown(caption)
    has, fits = ours(caption)
    assert kept + cut == caption
    assert bool(cut) == (has > fits)
    assert fits == 22


def test_the_cut_is_shown_where_it_is(forms: Path) -> None:
    _, ours = both(ROOT / "models/sdxl/configs/tokenizer_2")
    words = [f"word{number % 10}" for number in range(60)]  # "word" and a digit: two tokens
    caption = ", ".join(words)
    kept, cut = ours.shown(caption)
    assert ours(caption) == (179, 75)
    assert ours(kept) == (75, 75)
    assert cut.lstrip(" ,").startswith("word5, word6")
    assert kept.count("word") == 25


def test_published_vocabularies_are_built_once_and_only_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from models._shared import token_counts

    counters = discover.load("models", "sdxl", "tokens").counters("stabilityai/stable-diffusion-xl-base-1.0")
    assert list(counters) == ["text_encoder", "text_encoder_2"]
    assert not any("_tokenizer" in vars(counter) for counter in counters.values())
    assert {counter("a!b")[0] for counter in counters.values()} == {3}
    before = token_counts._published_model.cache_info().misses
    assert {counter("")[0] for counter in counters.values()} == {0}
    assert token_counts._published_model.cache_info().misses == before <= 1


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": 3}}', encoding="utf-8")
    with pytest.raises(UserError, match="tokenizer can't be read"):
        TokenCounter(tmp_path, LIMIT)("a cat")
    (tmp_path / "tokenizer.json").write_text("no json", encoding="utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        TokenCounter(tmp_path, LIMIT)("a cat")


@pytest.mark.parametrize("family", discover.names("models"))
def test_weights_without_a_tokenizer_of_their_own_are_counted_by_the_bundled_one(family: str, tmp_path: Path) -> None:
    load = discover.load("models", family, "tokens").counters
    file = tmp_path / "a.safetensors"
    file.touch()
    places = ("owner/name", str(tmp_path / "missing"), str(tmp_path), "builtin:none", "./x.safetensors", str(file))
    assert len({tuple(one("a [red] cat!") for one in load(place).values()) for place in places}) == 1
    home = ROOT / "models" / family
    configs = home / "configs" if (home / "configs").is_dir() else home / "weights"
    shutil.copytree(configs, tmp_path / "a.configs", ignore=shutil.ignore_patterns("*.safetensors"))
    short = {"model_max_length": 12, "pad_token": END}
    (tmp_path / "a.configs" / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(short), encoding="utf-8")
    assert load(str(file))["text_encoder"]("a cat")[1] == 10
