"""Which modules and weights a pattern of the preset means, and what to say when it means none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from trainers.core.errors import Problem, UserError

from ._protocol import Role

if TYPE_CHECKING:
    from torch import nn

_WILD = re.compile(r"[*?\[]")


def matches(pattern: str, name: str) -> bool:
    """Tell whether `pattern` means the canonical `name` ("<part>.<path>").

    A glob ("*.attn1.to_q") is compared with the name with and without its part; "*" crosses dots. Text without a
    wildcard ("to_q", "mid_block.attentions.0.proj_in") means every name that ends with these whole components.
    """
    path = name.partition(".")[2]
    if _WILD.search(pattern):
        return fnmatchcase(path, pattern) or fnmatchcase(name, pattern)
    return name == pattern or path == pattern or name.endswith("." + pattern)


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Tell whether any of `patterns` means `name`."""
    return any(matches(pattern, name) for pattern in patterns)


def alike(pattern: str, names: Sequence[str]) -> str:
    """Return a hint with the module names most like `pattern`; indices are shown as "*", so that few remain."""
    shapes = sorted({re.sub(r"\.\d+(?=\.|$)", ".*", name.partition(".")[2]) for name in names})
    leaf = pattern.rsplit(".", 1)[-1]
    by_leaf: dict[str, str] = {}
    for shape in shapes:
        by_leaf.setdefault(shape.rsplit(".", 1)[-1], shape)
    near = [by_leaf[hit] for hit in difflib.get_close_matches(leaf, list(by_leaf), n=2, cutoff=0.5)]
    near += difflib.get_close_matches(pattern, shapes, n=3, cutoff=0.3)
    chosen = list(dict.fromkeys(near))[:3] or shapes[:3]
    return "nearest: " + ", ".join(f'"{shape}"' for shape in chosen) if chosen else "the model has no such modules"


def require_hits(patterns: Iterable[str], names: Sequence[str], where: str, known: Sequence[str] | None = None) -> None:
    """Raise a UserError naming every pattern that means none of `names`; hints come from `known` (default `names`)."""
    problems = [
        Problem(where, f'"{pattern}" matches nothing', alike(pattern, names if known is None else known))
        for pattern in patterns
        if not any(matches(pattern, name) for name in names)
    ]
    if problems:
        raise UserError(problems)


def choose_parts(parts: Sequence[str], modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Pick the networks to be trained; a part that this model does not have is a UserError."""
    missing = [part for part in parts if part not in modules]
    if missing:
        remedy = f"this model has: {', '.join(modules)}"
        raise UserError([Problem("train.parts", f'there is no part "{part}"', remedy) for part in missing])
    return {part: modules[part] for part in dict.fromkeys(parts)}


class PerName:
    """A value per part or glob, e.g. `lr = { denoiser = 1e-4, "*.attn2.*" = 5e-5 }`; later entries override earlier."""

    def __init__(self, values: Mapping[str, float], where: str) -> None:
        self._values: dict[str, float] = dict(values)
        self._where = where

    def check(self, names: Sequence[str]) -> None:
        """Raise a UserError for each key that means none of `names`."""
        parts = {name.partition(".")[0] for name in names}
        require_hits([key for key in self._values if key not in parts], names, self._where)

    def get(self, name: str) -> float | None:
        """Return the last value whose key means `name`, or None."""
        part = name.partition(".")[0]
        hits = [value for key, value in self._values.items() if key == part or matches(key, name)]
        return hits[-1] if hits else None


def role_of(module: nn.Module, leaf: str, name: str, excluded: Sequence[str]) -> Role:
    """Return how an optimizer should treat weight `leaf` of `module`.

    `excluded` are the family's globs of first and last projections (Facts.muon_excluded), of modules or weights. Only
    the weight of a linear layer is a "matrix": a 2-D table (positions, modulation) is no map between hidden spaces.
    """
    from torch import nn

    shape = getattr(module, leaf).shape
    if len(shape) < 2:
        return "vector"
    if isinstance(module, nn.Embedding):
        return "embedding"
    if matches_any(excluded, name) or matches_any(excluded, name.rpartition(".")[0]):
        return "io"
    if len(shape) > 2 and isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return "conv"
    return "matrix" if len(shape) == 2 and isinstance(module, nn.Linear) else "embedding"
