"""The averaged weights of a run (EMA), kept in float32 beside the trained ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from trainers.adapters._protocol import Trainable
from trainers.diffusion.averages import ema_decay


class Averages:
    """Exponential moving average of every trainable, with a warmed-up decay so that short runs average too."""

    def __init__(self, trainables: Sequence[Trainable], decay: float, *, warmup: bool = True) -> None:
        self.decay, self.warmup = decay, warmup
        self._names = [trainable.name for trainable in trainables]
        self._live = [trainable.parameter for trainable in trainables]
        self._mean = [parameter.detach().clone() for parameter in self._live]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the averages after update number `step` (1-based)."""
        decay = ema_decay(step, self.decay, self.warmup)
        torch._foreach_lerp_(self._mean, [parameter.detach() for parameter in self._live], 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averages in place of the live weights for a while; the live ones come back bit for bit."""
        kept = [parameter.detach().clone() for parameter in self._live]
        self._write(self._mean)
        try:
            yield
        finally:
            self._write(kept)

    def state(self) -> dict[str, Tensor]:
        """The averages by canonical name."""
        return dict(zip(self._names, self._mean, strict=True))

    def load(self, state: dict[str, Tensor]) -> None:
        """Take averages back from a checkpoint."""
        for name, mean in zip(self._names, self._mean, strict=True):
            mean.copy_(state[name])

    @torch.no_grad()
    def _write(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self._live, values, strict=True):
            parameter.copy_(value)
