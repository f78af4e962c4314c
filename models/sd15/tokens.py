"""What Stable Diffusion 1.x's text encoder sees of a caption. Free of torch."""

from __future__ import annotations

from pathlib import Path

from models._shared.token_counts import TokenCounter, clip_counters

from .facts import FACTS


def counters(weights: str) -> dict[str, TokenCounter]:
    """Text encoder -> what counts (tokens a caption has, tokens that fit) for it; nothing is downloaded."""
    return clip_counters(weights, FACTS, Path(__file__).with_name("configs"))
