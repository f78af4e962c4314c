"""AdamW with its averages in 8 bits: a quarter of the optimizer's memory. Dettmers et al. 2021."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainers.core.plugin import option

from ._extra import need
from ._groups import Group
from ._protocol import Betas, OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """For full fine-tunes that do not fit; a LoRA's averages are small already."""

    kind: Literal["adamw8bit"] = option("adamw8bit", "8-bit AdamW of bitsandbytes.")
    betas: Betas = option((0.9, 0.999), "Decay of the averages of gradient and square.", advanced=True)
    eps: float = option(1e-8, "Keeps the division finite.", gt=0, advanced=True)
    paged: bool = option(False, "Let the averages move to the computer's memory when the GPU's is full.", advanced=True)
    min_8bit_size: int = option(4096, "Smaller weights keep 32-bit averages.", unit="numbers", ge=0, advanced=True)


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Make bitsandbytes' AdamW8bit or its paged twin."""
    bnb = need("bitsandbytes", "bitsandbytes", 'optimizer.kind = "adamw8bit"')
    kind = bnb.optim.PagedAdamW8bit if config.paged else bnb.optim.AdamW8bit
    optimizer: Optimizer = kind(
        [group.as_dict() for group in groups],
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        min_8bit_size=config.min_8bit_size,
    )
    return [optimizer]
