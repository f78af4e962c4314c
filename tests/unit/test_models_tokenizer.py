"""CLIP's published vocabulary from the bundled merges, and the tiny one of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from models._shared.clip_tokenizer import TINY_CORPUS, load_tokenizer, published_tokenizer, tiny_tokenizer

CONFIGS = Path(__file__).resolve().parents[2] / "models"


def test_published_ids() -> None:
    tokenizer = published_tokenizer()
    assert len(tokenizer) == 49408
    assert tokenizer("a photo of a cat").input_ids == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert tokenizer("  A  PHOTO of\na cat").input_ids == tokenizer("a photo of a cat").input_ids


@pytest.mark.parametrize(
    ("folder", "pad"),
    [("sd15/configs/tokenizer", 49407), ("sd2/configs/tokenizer", 0), ("sdxl/configs/tokenizer_2", 0)],
)
def test_a_folder_of_settings_gets_the_published_vocabulary(folder: str, pad: int) -> None:
    tokenizer = load_tokenizer(CONFIGS / folder)
    ids = tokenizer(["a cat"], padding="max_length", max_length=tokenizer.model_max_length, truncation=True).input_ids[
        0
    ]
    assert ids == [49406, 320, 2368, 49407] + [pad] * 73


def test_the_tiny_tokenizer_knows_its_corpus_and_writes_anything(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(TINY_CORPUS, size=600)
    assert len(tokenizer) == 600
    assert tokenizer.eos_token_id == 599
    assert len(tokenizer("a photo of a cat", add_special_tokens=False).input_ids) == 5
    text = "žluť 猫"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids).strip() == text
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path)(text).input_ids == tokenizer(text).input_ids
