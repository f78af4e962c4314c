"""Plug-ins are found by their place: a file or folder in the right package is enough."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from .errors import UserError, nearest


@cache
def names(package: str) -> tuple[str, ...]:
    """List the plug-ins of a package without importing them. Names starting with "_" are helpers, not plug-ins."""
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.name.startswith("_"):
            continue
        kind = module.name.replace("-", "_")
        if kind in found:
            raise UserError(f'"{kind}" exists twice in {package}', remedy="rename one of them")
        found[kind] = module.name
    return tuple(sorted(found))


def load(package: str, name: str, part: str = "") -> ModuleType:
    """Import plug-in `name` of `package`, or its submodule `part` ("facts", "family"). Unknown names get a hint."""
    known = names(package)
    if name not in known:
        hint = nearest(name, known)
        remedy = f'did you mean "{hint}"?' if hint else f"known: {', '.join(known)}"
        raise UserError(f'there is no "{name}" in {package}', remedy=remedy)
    return importlib.import_module(f"{package}.{name}" + (f".{part}" if part else ""))
