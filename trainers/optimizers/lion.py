"""Lion: the sign of a momentum. Chen et al. 2023."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainers.core.plugin import option

from ._groups import Group
from ._protocol import Betas, OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """Half of AdamW's memory. Wants a learning rate 3 to 10 times smaller and a weight decay that much larger."""

    kind: Literal["lion"] = option("lion", "Lion.")
    lr: float = option(2e-5, "Learning rate; every weight moves by exactly this much each step.", gt=0, le=1)
    betas: Betas = option((0.9, 0.99), "Averages for the update and for the momentum.", advanced=True)


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Make our Lion."""
    from ._lion import Lion

    return [Lion([group.as_dict() for group in groups], lr=config.lr, betas=config.betas)]
