"""What counts the tokens of captions for a preset's text encoders. Free of torch."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from trainers.core import discover
from trainers.core.facts import Facts
from trainers.data.tokens import Counters
from trainers.presets.paths import absolute, is_local
from trainers.presets.preset import Preset


def weights_place(preset: Preset, facts: Facts, base: Path) -> str:
    """The weights of a preset of folder `base`, to be read from anywhere: local paths whole, hub ids as they are."""
    text = preset.model.weights or facts.default_weights
    return os.path.abspath(absolute(text, base)) if text and is_local(text, base) else text


def counters_of(preset: Preset, facts: Facts, base: Path) -> Counters:
    """Text encoder -> counter, by the tokenizers of the weights; none for a family that can't count without loading."""
    family = preset.model.family
    if not facts.text_encoders or importlib.util.find_spec(f"models.{family}.tokens") is None:
        return {}
    counters: Counters = discover.load("models", family, "tokens").counters(weights_place(preset, facts, base))
    return counters
