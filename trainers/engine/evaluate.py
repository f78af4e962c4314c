"""Validation loss: held-out samples at fixed noise and times, so that the curve compares between steps and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from trainers.core.batch import MicroBatch
from trainers.core.random import normal
from trainers.engine.step import Stepper, to_device
from trainers.memory.device import evaluating
from trainers.objectives._protocol import Objective


@dataclass(frozen=True)
class Validation:
    """Mean loss over all held-out samples, and the mean at each fixed quantile of time."""

    loss: float
    by_quantile: dict[str, float]


def quantiles(count: int) -> tuple[float, ...]:
    """`count` evenly spaced numbers in (0, 1): the middles of equal bins."""
    return tuple((index + 0.5) / count for index in range(count))


def validate(stepper: Stepper, batches: Sequence[MicroBatch], times: int, seed: int) -> Validation:
    """Measure the loss of every held-out sample at `times` fixed quantiles of the training's own time density."""
    table = torch.zeros(times, dtype=torch.float64)
    count = 0
    modules = [stepper.denoiser] + ([stepper.text] if stepper.text is not None else [])
    with evaluating(*modules):
        for micro in batches:
            count += len(micro.ids)
            for row, u in enumerate(quantiles(times)):
                moved = to_device(_fixed(stepper.objective, micro, u, row, seed), stepper.device.device)
                loss, _ = stepper.loss(moved, 1.0)
                table[row] += float(loss)
    means = (table / max(1, count)).tolist()
    named = {f"{u:.3f}": mean for u, mean in zip(quantiles(times), means, strict=True)}
    return Validation(float(np.mean(means)), named)


def _fixed(objective: Objective, micro: MicroBatch, u: float, row: int, seed: int) -> MicroBatch:
    """The same samples with all noise and the time of one quantile, undropped and of weight 1."""
    shape = tuple(micro.x0.shape[1:])
    eps = np.stack([normal(seed, "validation", name, row, shape) for name in micro.ids])
    single = [objective.extra_noise(partial(_stream, seed, name, row), shape) for name in micro.ids]
    extra = {kind: torch.from_numpy(np.stack([noise[kind] for noise in single])) for kind in single[0]}
    draw = replace(micro.draw, eps=torch.from_numpy(eps), u=torch.full((len(micro.ids),), u), extra=extra)
    return replace(micro, draw=draw, dropped=torch.zeros_like(micro.dropped), weight=torch.ones_like(micro.weight))


def _stream(seed: int, name: str, row: int, stream: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return normal(seed, f"validation/{stream}", name, row, shape)
