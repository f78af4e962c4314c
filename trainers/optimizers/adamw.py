"""AdamW: Adam with decoupled weight decay. Loshchilov and Hutter 2017."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainers.core.plugin import option

from ._groups import Group
from ._protocol import Betas, OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """The sound default."""

    kind: Literal["adamw"] = option("adamw", "AdamW.")
    betas: Betas = option((0.9, 0.999), "Decay of the averages of gradient and square.", advanced=True)
    eps: float = option(1e-8, "Keeps the division finite.", gt=0, advanced=True)


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Make torch's AdamW, with its fused kernel where all weights lie on a device that has one."""
    from ._adamw import make_adamw

    return [make_adamw(groups, betas=config.betas, eps=config.eps)]
