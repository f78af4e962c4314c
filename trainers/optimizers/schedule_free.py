"""Schedule-free AdamW: averages instead of a schedule, so the end need not be known. Defazio et al. 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainers.core.plugin import option

from ._extra import need
from ._groups import Group
from ._protocol import Betas, OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """Use it with a constant schedule, with warm-up if wanted. Previews and exports show the averaged weights."""

    kind: Literal["schedule_free"] = option("schedule_free", "Schedule-free AdamW.")
    lr: float = option(2.5e-4, "Learning rate; usually 1 to 10 times AdamW's.", gt=0, le=1)
    betas: Betas = option((0.9, 0.999), "Interpolation, and decay of the squares.", advanced=True)
    eps: float = option(1e-8, "Keeps the division finite.", gt=0, advanced=True)
    r: float = option(0.0, "Power by which later steps weigh more in the average.", ge=0, advanced=True)


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Make schedulefree's AdamW, in training mode."""
    schedulefree = need("schedulefree", "schedulefree", 'optimizer.kind = "schedule_free"')
    optimizer = schedulefree.AdamWScheduleFree(
        [group.as_dict() for group in groups],
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        r=config.r,
    )
    optimizer.train()
    return [optimizer]
