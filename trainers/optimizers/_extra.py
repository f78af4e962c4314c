"""Optional packages: imported only when chosen, with a sentence for people when absent."""

from __future__ import annotations

import importlib
from types import ModuleType

from trainers.core.errors import UserError


def need(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{purpose} needs the package {module.partition('.')[0]}, which cannot be imported ({error})",
            where="optimizer.kind",
            remedy=f'pip install "trainers[{extra}]"',
        ) from error
