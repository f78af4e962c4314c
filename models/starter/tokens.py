"""What the starter model's text encoder sees of a caption. Free of torch."""

from __future__ import annotations

from pathlib import Path

from models._shared.token_counts import TokenCounter, clip_counters

from .facts import FACTS

_HOME = Path(__file__).parent


def counters(weights: str) -> dict[str, TokenCounter]:
    """Text encoder -> what counts (tokens a caption has, tokens that fit) for it; nothing is downloaded."""
    embedded = (_HOME / "weights" / "tokenizer").is_dir()
    return clip_counters(weights, FACTS, _HOME / ("weights" if embedded else "configs"))
