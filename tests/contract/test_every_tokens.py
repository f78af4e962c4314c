"""Every family with text counts its captions without torch as it counts them with its loaded text encoders."""

from __future__ import annotations

from typing import Any

import pytest

from trainers.core import discover

LONG = "one two, " * 60
CAPTIONS = (
    "", "a photo of a cat", "A painting, of (a small) blue house!!", "žluť 猫 🐈‍⬛", LONG,
    "<|endoftext|> it's", "a" * 99, " ".join(["a"] * 75), " ".join(["a"] * 76),
)  # fmt: skip


@pytest.fixture(scope="module", params=discover.names("models"))
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """A family, its tiny text part, and its counters for the same weights."""
    import torch

    family = discover.load("models", request.param, "family").Family()
    folder = family.tiny(tmp_path_factory.mktemp(request.param) / "tiny ü")
    text = family.load("text", family.resolve(str(folder)), dtype=torch.float32, device="cpu")
    return family, text, discover.load("models", request.param, "tokens").counters(str(folder))


def test_each_text_encoder_has_its_counter(counted: tuple[Any, Any, Any]) -> None:
    family, _, counters = counted
    assert tuple(counters) == family.facts.text_encoders


def test_counts_agree_with_the_loaded_tokenizers(counted: tuple[Any, Any, Any]) -> None:
    family, text, counters = counted
    for caption in CAPTIONS:
        assert {name: counter(caption) for name, counter in counters.items()} == family.count_tokens(text, caption)


def test_what_is_not_seen_changes_nothing(counted: tuple[Any, Any, Any]) -> None:
    """The encoder's ids of a cut caption are those of the part that is shown as kept."""
    from models._shared.text import token_ids

    _, text, counters = counted
    for name, counter in counters.items():
        kept, cut = counter.shown(LONG)
        assert cut
        assert kept + cut == LONG
        ids = token_ids(text.tokenizers[name], [LONG, kept], "cpu")
        assert ids[0].equal(ids[1])
