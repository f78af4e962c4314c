"""Files that are never half-written: write beside, flush to the disk, rename."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def fsync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_file(path: Path) -> None:
    """Flush a finished file to the disk."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a temporary path in the same folder; rename it to `path` when the block ends well, remove it otherwise.

    `durable` waits for the disk: wanted for results, not for caches that can be made again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if durable:
            fsync_file(temporary)
        os.replace(temporary, path)
        if durable:
            fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def clear_temporaries(folder: Path) -> None:
    """Remove what writes that were cut off left below `folder`; only for the one process that writes there."""
    for path in sorted(folder.rglob(".*.tmp")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a whole file at once, or not at all."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write a JSON document for people: indented, UTF-8, newline at the end."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(), durable=durable)
