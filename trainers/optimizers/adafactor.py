"""Adafactor: second moments kept as row and column averages, so hardly any memory. Shazeer and Stern 2018."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainers.core.plugin import option

from ._groups import Group
from ._protocol import OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """Adafactor with the learning rate and schedule of the preset (its own relative steps are off)."""

    kind: Literal["adafactor"] = option("adafactor", "Adafactor.")
    decay_rate: float = option(-0.8, "Power by which the average of squares lengthens.", lt=0, gt=-2, advanced=True)
    momentum: float | None = option(None, "First-moment average; default: none, which saves its memory.", ge=0, lt=1)
    clip_threshold: float = option(1.0, "Largest root mean square of an update.", gt=0, advanced=True)
    scale_parameter: bool = option(
        False, "Scale updates by the size of the weight; not for LoRA, whose B matrices start at zero.", advanced=True
    )


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Make transformers' Adafactor: torch's own cannot leave out the scaling by the size of the weight."""
    from transformers.optimization import Adafactor

    optimizer = Adafactor(
        [group.as_dict() for group in groups],
        lr=config.lr,
        decay_rate=config.decay_rate,
        beta1=config.momentum,
        clip_threshold=config.clip_threshold,
        weight_decay=config.weight_decay,
        scale_parameter=config.scale_parameter,
        relative_step=False,
        warmup_init=False,
    )
    return [optimizer]
