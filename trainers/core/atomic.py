"""Files that are never half-written: write beside, flush to the disk, rename."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

_WINDOWS = os.name == "nt"
_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # seconds between tries, 1.6 in all
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # some network file systems have no such call
_LONGEST_STEM = 40  # a temporary name must not be too long where the name itself just fits

Result = TypeVar("Result")


def patiently(act: Callable[[], Result]) -> Result:
    """Do something to a file, and again where Windows forbids it: a reader or a virus scanner has it for a moment."""
    for seconds in _WAITS if _WINDOWS else ():
        try:
            return act()
        except PermissionError:
            time.sleep(seconds)
    return act()


def move(source: Path, target: Path) -> None:
    """Rename a file (over another one) or a folder, on the same disk."""
    patiently(lambda: os.replace(source, target))


def fsync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable. Windows has no such call and needs none."""
    if _WINDOWS:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
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
    temporary = path.with_name(f".{path.name[:_LONGEST_STEM]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if durable:
            fsync_file(temporary)
        move(temporary, path)
        if durable:
            fsync_folder(path.parent)
    finally:
        with suppress(OSError):  # what cannot be removed now is removed by `clear_temporaries`
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
    """Write a JSON document for people: indented, UTF-8, newline at the end.

    Letters that UTF-8 has no word for, as in file names of an old system, become JSON's own escapes.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode("utf-8", "backslashreplace"), durable=durable)
