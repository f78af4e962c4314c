"""What every optimizer's Config holds, and how a bundle is made from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from trainers.core import discover
from trainers.core.errors import UserError
from trainers.core.plugin import Config as Base
from trainers.core.plugin import option

from ._groups import Trained, make_groups

if TYPE_CHECKING:
    from ._facade import Bundle

_Share = Annotated[float, Field(ge=0, lt=1)]
Betas = tuple[_Share, _Share]


class OptimizerConfig(Base):
    """Settings that all optimizers share. A plug-in adds `kind: Literal[...]` and its own."""

    kind: str
    lr: float = option(1e-4, "Learning rate: the size of an update, before the schedule's factor.", gt=0, le=10)
    weight_decay: float = option(0.01, "Pull of the weights towards zero per step, times the rate.", ge=0, le=1)
    decay_vectors: bool = option(False, "Apply weight decay to biases, gains and norms too.", advanced=True)


def make_bundle(config: OptimizerConfig, trainables: Iterable[Trained]) -> Bundle:
    """Build the optimizers of `config` over `trainables`, as one."""
    from ._facade import Bundle

    groups = make_groups(trainables, config.lr, config.weight_decay, decay_vectors=config.decay_vectors)
    if not groups:
        raise UserError("there is no trainable weight", where="train", remedy="choose parts and targets to train")
    plugin = discover.load("trainers.optimizers", config.kind)
    return Bundle(plugin.build(config, groups))
