"""The starter model's tokenizer can write any text, in CLIP's form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CLIPTokenizer

from models.starter.captions import FULL, fill
from models.starter.pictures import GROUNDS
from models.starter.tokenizer import MAX_LENGTH, make_tokenizer, save_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> CLIPTokenizer:
    folder = tmp_path_factory.mktemp("captions")
    lines = [fill(pattern, "panda", look, ground) for pattern in FULL for look in ("3d", "flat") for ground in GROUNDS]
    (folder / "000.txt").write_text("\n".join(lines), encoding="utf-8")
    return make_tokenizer(folder)


def spoken(text: str) -> str:
    """What of a text a CLIP tokenizer keeps: lower case, one space between words."""
    return " ".join(text.lower().split())


@pytest.mark.parametrize("text", ["a 3d panda on a blue background", "zkw cat", "ünïcödé 猫 панда", "x" * 40, "3.5%!"])
def test_text_comes_back(tokenizer: CLIPTokenizer, text: str) -> None:
    back = tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)
    assert back.replace(" ", "") == spoken(text).replace(" ", "")


@given(text=st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_text_can_be_written(tokenizer: CLIPTokenizer, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.unk_token_id == tokenizer.eos_token_id
    assert tokenizer.unk_token_id not in ids


def test_a_word_of_the_captions_is_one_token(tokenizer: CLIPTokenizer) -> None:
    ids = tokenizer("a flat panda on a blue background").input_ids
    assert len(ids) == 2 + 7
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id


def test_long_text_is_cut(tokenizer: CLIPTokenizer) -> None:
    assert len(tokenizer("word " * 100, truncation=True).input_ids) == MAX_LENGTH


def test_the_saved_folder_tells_the_same(tokenizer: CLIPTokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path)
    again = CLIPTokenizer.from_pretrained(tmp_path)
    text = "a flat owl, Ü, on an orange background"
    assert again(text).input_ids == tokenizer(text).input_ids
    vocabulary = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert sorted(vocabulary.values()) == list(range(len(tokenizer)))
