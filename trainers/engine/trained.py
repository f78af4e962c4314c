"""What a run has trained so far, loaded again to paint or to export with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from trainers.checkpoint.store import check, complete, newest, step_of
from trainers.core.errors import UserError
from trainers.core.family import Family
from trainers.engine import build
from trainers.engine.preview import Painter
from trainers.engine.run import require_run
from trainers.engine.state import TrainState
from trainers.memory.device import choose
from trainers.memory.heap import keep_pages
from trainers.presets.load import load_preset
from trainers.presets.preset import resolve

if TYPE_CHECKING:
    from trainers.presets.load import Loaded


@dataclass(frozen=True)
class Trained:
    """The parts of a run's model with the weights of one of its checkpoints."""

    loaded: Loaded
    family: Family
    painter: Painter
    text: nn.Module
    state: TrainState


def load_trained(folder: Path, *, step: int | None = None, device: str = "auto") -> Trained:
    """Load the model of a run at its newest checkpoint, or at the one of `step`."""
    directory = require_run(folder)
    checkpoint = choose_checkpoint(folder, step)
    loaded = load_preset(directory.preset)
    keep_pages()
    place = choose(device, loaded.preset.compute.precision)
    family = build.family_of(loaded.preset.model.family)
    preset = resolve(loaded.preset, family.facts)
    _, weights = build.make_objective(preset, build.resolve_weights(family, preset, loaded.folder))
    text = family.load("text", weights, dtype=torch.float32, device=place.device)
    networks = build.load_networks(family, weights, preset, place, text)
    adapter, trainables = build.make_adapter(preset, networks, weights, family, loaded.folder)
    state = build.make_state(preset, adapter, trainables, place)
    state.read(checkpoint)
    vae = family.load("vae", weights, dtype=torch.float32, device=place.device)
    return Trained(loaded, family, Painter(family, weights, networks.denoiser, vae, place), text, state)


def choose_checkpoint(folder: Path, step: int | None) -> Path:
    """The newest whole checkpoint of a run, or the one of `step`; says which there are when it does not exist."""
    if step is None:
        path, _ = newest(folder)
        if path is None:
            raise UserError("this run has no checkpoint yet", where=str(folder), remedy="wait for its first one")
        return path
    found = {step_of(path): path for path in complete(folder)}
    if step not in found or check(found[step]) is not None:
        there = ", ".join(str(number) for number in sorted(found)) or "none"
        raise UserError(f"there is no whole checkpoint of step {step}", where=str(folder), remedy=f"there are: {there}")
    return found[step]
