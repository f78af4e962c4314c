"""Proof that training trains: every trainable weight has had a finite non-zero gradient and has moved, or is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.adapters._protocol import Trainable

STEPS = 4
_SAMPLED = 4096


@dataclass(frozen=True)
class Proof:
    """`total` trainable tensors were watched; the lists name the ones that did not pass."""

    total: int
    without_gradient: tuple[str, ...]
    not_finite: tuple[str, ...]
    not_moved: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every tensor passed."""
        return not (self.without_gradient or self.not_finite or self.not_moved)

    def sentence(self) -> str:
        """The result in one sentence for people."""
        if self.holds:
            return f"all {self.total} trainable tensors get gradients and move"
        parts = [
            f"{len(names)} {what} (first: {names[0]})"
            for names, what in (
                (self.without_gradient, "never had a non-zero gradient"),
                (self.not_finite, "had a gradient that is not finite"),
                (self.not_moved, "did not move"),
            )
            if names
        ]
        return f"of {self.total} trainable tensors " + "; ".join(parts)


class Witness:
    """Watches the first updates of a run. Keeps a sample of each tensor, not a copy of the model."""

    def __init__(self, trainables: Sequence[Trainable]) -> None:
        self._trainables = trainables
        self._before = [_fingerprint(trainable.parameter) for trainable in trainables]
        self._seen = [False] * len(trainables)
        self._finite = [True] * len(trainables)

    @torch.no_grad()
    def look(self) -> None:
        """Look at the gradients of the update that was just made."""
        for index, trainable in enumerate(self._trainables):
            gradient = trainable.parameter.grad
            if gradient is None:
                continue
            top = float(gradient.abs().max())
            self._seen[index] |= top != 0  # one that is not a number is a gradient, a broken one
            self._finite[index] &= top < float("inf")

    def conclude(self) -> Proof:
        """Compare with the start and name what has not trained."""
        names = [trainable.name for trainable in self._trainables]
        still = [
            torch.equal(before, _fingerprint(trainable.parameter))
            for before, trainable in zip(self._before, self._trainables, strict=True)
        ]
        return Proof(
            len(names),
            tuple(name for name, seen in zip(names, self._seen, strict=True) if not seen),
            tuple(name for name, finite in zip(names, self._finite, strict=True) if not finite),
            tuple(name for name, same in zip(names, still, strict=True) if same),
        )


@torch.no_grad()
def _fingerprint(parameter: Tensor) -> Tensor:
    """Evenly spaced values of a tensor (all of a small one), on the CPU."""
    flat = parameter.detach().reshape(-1)
    stride = max(1, flat.numel() // _SAMPLED)
    return flat[::stride].to("cpu", copy=True)
