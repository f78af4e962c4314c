"""Compare the names and shapes of saved weights with the live ones, and say everything that differs at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainers.core.errors import Problem, UserError

if TYPE_CHECKING:
    from torch import Tensor

_SHOWN = 5


def check_same(found: Mapping[str, Tensor], wanted: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Raise a UserError unless `found` has exactly the names and shapes of `wanted`."""
    problems = [
        *_listed(sorted(set(wanted) - set(found)), f"{what} lacks", "train the same parts and targets as before"),
        *_listed(sorted(set(found) - set(wanted)), f"{what} has weights this run does not train:", ""),
    ]
    for name in sorted(set(found) & set(wanted)):
        if tuple(found[name].shape) != tuple(wanted[name]):
            sizes = f"{list(found[name].shape)} in {what}, {list(wanted[name])} in this run"
            problems.append(Problem(name, f"the shapes differ: {sizes}", "use the same rank and the same model"))
    if len(problems) > _SHOWN:
        problems = [*problems[:_SHOWN], Problem("", f"and {len(problems) - _SHOWN} more differences")]
    if problems:
        raise UserError(problems)


def _listed(names: list[str], what: str, remedy: str) -> list[Problem]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [Problem("", f"{what} {', '.join(names[:_SHOWN])}{more}", remedy)]
