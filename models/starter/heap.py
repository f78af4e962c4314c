"""One call that keeps freed activations in the process (glibc only); training gets faster by it."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def keep_heap_pages() -> bool:
    """Tell glibc not to hand freed blocks back to the kernel; return whether it was possible."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return False
    settings = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 << 20))
    return all(libc.mallopt(name, value) == 1 for name, value in settings)
