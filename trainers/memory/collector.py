"""Python's garbage collector out of the way while libraries are imported.

Imports make about a million objects and hardly any garbage, and the collector goes through all of them again and again:
a fifth of the CPU time that it takes to import torch, diffusers and transformers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside the block (objects without cycles are freed as ever); blocks may be nested."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def keep_imported() -> None:
    """Exempt what exists now from all later collections. To be called while there are only modules, no networks."""
    gc.freeze()
