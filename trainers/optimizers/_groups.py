"""Parameter groups by role: what shares a learning rate and a weight decay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn


class Trained(Protocol):
    """What this package needs to know of a trainable weight; `lr` None means the optimizer's own rate."""

    @property
    def name(self) -> str: ...
    @property
    def parameter(self) -> nn.Parameter: ...
    @property
    def role(self) -> str: ...
    @property
    def lr(self) -> float | None: ...


@dataclass(frozen=True)
class Group:
    """Weights of one role and rate. `names` and `params` run in parallel."""

    role: str
    lr: float
    weight_decay: float
    names: tuple[str, ...]
    params: tuple[nn.Parameter, ...]

    def as_dict(self, **extra: Any) -> dict[str, Any]:
        """Return the group as torch optimizers take it; `names` rides along, so that states are saved by name."""
        values = {"params": list(self.params), "lr": self.lr, "weight_decay": self.weight_decay}
        return {**values, "names": list(self.names), "role": self.role, **extra}


def make_groups(
    trainables: Iterable[Trained], lr: float, weight_decay: float, *, decay_vectors: bool = False
) -> list[Group]:
    """Sort trainables into groups of equal role and rate, in order of first appearance.

    Vectors (biases, gains, DoRA magnitudes) are not decayed unless `decay_vectors`: pulling a gain to zero is no
    regularisation.
    """
    sorted_: dict[tuple[str, float], list[Trained]] = {}
    for item in trainables:
        sorted_.setdefault((item.role, lr if item.lr is None else item.lr), []).append(item)
    return [
        Group(
            role=role,
            lr=rate,
            weight_decay=weight_decay if decay_vectors or role != "vector" else 0.0,
            names=tuple(item.name for item in items),
            params=tuple(item.parameter for item in items),
        )
        for (role, rate), items in sorted_.items()
    ]
