"""What every adapter gives the engine, and the names of the weights it trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainers.core.facts import Facts

if TYPE_CHECKING:
    from torch import Tensor, nn

Role = Literal["matrix", "conv", "vector", "embedding", "io"]
"""matrix: hidden 2-D weight; conv: hidden kernel; vector: bias, gain; embedding: table; io: first or last map."""


@dataclass(frozen=True)
class Trainable:
    """One weight that the optimizer moves.

    `name` is canonical ("<part>.<module path>.<leaf>"), `parameter` a float32 master weight that requires a gradient,
    `lr` an absolute learning rate from the preset, or None where the optimizer's own applies.
    """

    name: str
    part: str
    parameter: nn.Parameter
    role: Role
    lr: float | None


class Adapter(Protocol):
    """One way of making a model trainable. It is built from a Config and attached once."""

    kind_of_export: Literal["lora", "model"]
    init_from: str | None

    def attach(self, modules: Mapping[str, nn.Module], facts: Facts) -> list[Trainable]:
        """Freeze every weight of `modules` (part -> network), then make or unfreeze the trained ones, as float32."""

    def set_draw(self, keys: Sequence[int]) -> None:
        """Give the random keys of the samples of the next micro-batch (see `draw_keys`); needed before its forward."""

    def state(self) -> dict[str, Tensor]:
        """Return the trained weights by canonical name: float32, detached, sharing memory with the live weights."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy a `state()` into the live weights; UserError lists what is missing, left over or of another shape."""

    def merged_weights(self) -> dict[str, Tensor]:
        """Return the base's changed weights by canonical name, float32, as a model without adapter would hold them."""

    def disabled(self) -> AbstractContextManager[None]:
        """Make the networks act as the untrained base inside the block."""

    def detach(self) -> None:
        """Put the networks back into their own classes; weights that live in the adapter have no effect afterwards."""

    def summary(self) -> dict[str, Any]:
        """Return plain facts for the plan, the log and the metadata: kind, layers, parameters, rank, alpha ..."""


def draw_keys(seed: int, step: int, ids: Sequence[str]) -> tuple[int, ...]:
    """Make the 64-bit key of each sample of a micro-batch: a pure function of the run's seed, the step and the sample.

    Because keys belong to samples, neither the micro-batch nor the number of ranks changes what is dropped.
    """
    from trainers.core import random

    bound = 2**63 - 1
    return tuple(random.integer(seed, "adapter_dropout", sample, step, bound) for sample in ids)
