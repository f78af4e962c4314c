"""Digests that name things by their content: pictures, cache entries, presets, weight files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def of_bytes(data: bytes, *, size: int = 16) -> str:
    """Return the hex BLAKE2b digest of `data`, `size` bytes long."""
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def of_file(path: Path, *, size: int = 16) -> str:
    """Return the digest of a file's content, read in pieces."""
    state = hashlib.blake2b(digest_size=size)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            state.update(piece)
    return state.hexdigest()


def of_json(value: Any, *, size: int = 16) -> str:
    """Return the digest of a JSON value in canonical form (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return of_bytes(text.encode("utf-8", "backslashreplace"), size=size)
