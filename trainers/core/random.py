"""Keyed random numbers: every draw is a pure function of (seed, stream, item, visit).

No global generator is read or saved anywhere in the suite, so the number of GPUs, the micro-batch and a resume change
nothing. Bits come from numpy's Philox, a counter-based generator: key = (seed, stream), counter = (item, visit).
Streams are disjoint by construction. Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def _word(value: int | str) -> int:
    """Map a name or number to 64 bits."""
    if isinstance(value, int):
        return value & 0xFFFFFFFFFFFFFFFF
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "little")


def generator(seed: int, stream: str, item: int | str = 0, visit: int = 0) -> np.random.Generator:
    """Make the generator of one draw. `item` is a sample id or any name, `visit` how often it was seen before."""
    key = np.array([_word(seed), _word(stream)], dtype=np.uint64)
    counter = np.array([0, 0, _word(item), _word(visit)], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def normal(seed: int, stream: str, item: int | str, visit: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw standard normal noise of `shape`, float32."""
    return generator(seed, stream, item, visit).standard_normal(shape, dtype=np.float32)


def uniform(seed: int, stream: str, item: int | str = 0, visit: int = 0) -> float:
    """Draw one number in [0, 1)."""
    return float(generator(seed, stream, item, visit).random())


def integer(seed: int, stream: str, item: int | str, visit: int, below: int) -> int:
    """Draw one whole number in [0, below)."""
    return int(generator(seed, stream, item, visit).integers(below))


def permutation(seed: int, stream: str, visit: int, count: int) -> NDArray[np.int64]:
    """Draw an order of `count` things; `visit` is the epoch."""
    return generator(seed, stream, 0, visit).permutation(count)
