"""Any optimizer class that can be imported."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any, Literal

from trainers.core.errors import UserError, nearest
from trainers.core.plugin import option

from ._groups import Group
from ._protocol import OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """A class by its import path, with arguments of its own. It gets groups with `lr` and `weight_decay`."""

    kind: Literal["custom"] = option("custom", "An optimizer class by import path.")
    path: str = option(
        ..., "Import path of the class.", pattern=r"^[A-Za-z_][\w.]*[.:][A-Za-z_]\w*$", examples=["torch.optim.NAdam"]
    )
    arguments: dict[str, Any] = option(
        default_factory=dict, help="Further keyword arguments of the class.", examples=[{"betas": [0.9, 0.98]}]
    )


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Import the class and make it over `groups`; whatever it refuses is told with its own words."""
    kind = _find(config.path)
    try:
        optimizer = kind([group.as_dict() for group in groups], lr=config.lr, **config.arguments)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{config.path} refuses its arguments: {error}", where="optimizer.arguments", remedy="see its documentation"
        ) from error
    if hasattr(optimizer, "train") and hasattr(optimizer, "eval"):
        optimizer.train()
    return [optimizer]


def _find(path: str) -> Any:
    """Import "package.module.Class" or "package.module:Class" and make sure that it is an optimizer."""
    from torch.optim import Optimizer

    module_name, _, name = path.replace(":", ".").rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(
            f"{module_name} cannot be imported: {error}", where="optimizer.path", remedy="install its package"
        ) from error
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        known = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Optimizer)]
        hint = nearest(name, known)
        raise UserError(
            f"{path} is no optimizer class",
            where="optimizer.path",
            remedy=f'did you mean "{module_name}.{hint}"?' if hint else f"known there: {', '.join(known) or 'none'}",
        )
    closure = inspect.signature(kind.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise UserError(
            f"{path} computes the loss several times per step, which this trainer does not do",
            where="optimizer.path",
            remedy="choose an optimizer whose step() needs no argument",
        )
    return kind
