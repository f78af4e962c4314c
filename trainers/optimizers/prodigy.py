"""Prodigy: finds its own learning rate while it runs. Mishchenko and Defazio 2023."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Literal

from trainers.core.plugin import option

from ._extra import need
from ._groups import Group
from ._protocol import Betas, OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """No learning rate to be guessed: leave `lr` at 1; a part's own rate is a factor on the found rate as well."""

    kind: Literal["prodigy"] = option("prodigy", "Prodigy.")
    lr: float = option(1.0, "Factor on the rate that Prodigy finds; 1 is meant.", gt=0, le=10)
    betas: Betas = option((0.9, 0.99), "Decay of the averages of gradient and square.", advanced=True)
    eps: float = option(1e-8, "Keeps the division finite.", gt=0, advanced=True)
    d0: float = option(1e-6, "First guess of the rate; far below the right one.", gt=0, advanced=True)
    d_coef: float = option(1.0, "Factor on the estimate: 2 is bolder, 0.5 more careful.", gt=0, advanced=True)
    bias_correction: bool = option(True, "Correct the averages of the first steps, as Adam does.", advanced=True)
    safeguard_warmup: bool = option(True, "Keep a warm-up from blowing up the estimate.", advanced=True)


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Make one Prodigy per distinct rate: one allows a single rate, so each finds an estimate of its own."""
    prodigyopt = need("prodigyopt", "prodigy", 'optimizer.kind = "prodigy"')
    made: list[Optimizer] = []
    for rate in dict.fromkeys(group.lr for group in groups):
        with redirect_stdout(StringIO()):  # it prints a line, which would spoil --json
            optimizer = prodigyopt.Prodigy(
                [group.as_dict() for group in groups if group.lr == rate],
                lr=rate,
                betas=config.betas,
                eps=config.eps,
                weight_decay=config.weight_decay,
                d0=config.d0,
                d_coef=config.d_coef,
                use_bias_correction=config.bias_correction,
                safeguard_warmup=config.safeguard_warmup,
            )
        made.append(optimizer)
    return made
