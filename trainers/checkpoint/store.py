"""Checkpoints that are whole or do not count.

A checkpoint is staged in a hidden folder, flushed file by file, closed by a manifest (name, size and digest of every
file) and renamed to `checkpoints/step-00000042` as the last act; older ones are removed only afterwards. So a kill or a
power cut at any moment leaves the previous checkpoint in its place; a damaged one is noticed, named and passed over.
Free of torch: programs that only list checkpoints use it too.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainers.core import digest
from trainers.core.atomic import fsync_file, fsync_folder, move, write_json
from trainers.core.errors import Problem, UserError
from trainers.core.units import format_bytes

MANIFEST = "manifest.json"
MIN_KEPT = 2
_FORMAT = 1
_STAGING = ".staging-"
_REPLACED = ".replaced-"
_NAME = re.compile(rf"^(?:{re.escape(_REPLACED)})?step-(\d+)$")
_SPARE_BYTES = 16 * 2**20  # left for logs, events and the manifest
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_IN_RUST = (39, 112) if os.name == "nt" else _FULL  # safetensors tells the system's own number


class DiskFull(UserError):  # noqa: N818 - a condition of the machine, like core's Interrupted
    """A checkpoint did not fit on the disk. The state is still in memory and older checkpoints are untouched."""


def save(
    run: Path,
    step: int,
    write: Callable[[Path], None],
    meta: dict[str, Any],
    *,
    keep: int = MIN_KEPT,
    need_bytes: int = 0,
) -> Path:
    """Save the state after `step` steps; `write` puts its files into the folder it is given.

    `meta` is a JSON object of the caller's. Keeps the newest `keep` (at least two) complete checkpoints. `need_bytes`
    is the expected size: DiskFull is raised before writing when it is not there, and when the disk fills up on the way.
    """
    folder = _folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    _require_space(folder, need_bytes)
    final = folder / f"step-{step:08d}"
    staging = folder / f"{_STAGING}{final.name}-{os.getpid()}-{secrets.token_hex(4)}"
    staging.mkdir()
    try:
        write(staging)
        _seal(staging, step, meta)
        _publish(staging, final)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if is_disk_full(error):
            raise _disk_full(folder, need_bytes) from error
        raise
    _rotate(run, max(keep, MIN_KEPT))
    return final


def newest(run: Path) -> tuple[Path | None, list[Problem]]:
    """Find the newest checkpoint whose files all are what its manifest says.

    Also names everything passed over on the way: damaged or incomplete checkpoints and saves that were cut off.
    """
    skipped = [_cut_off(path) for path in _staged(run)]
    for path in reversed(_candidates(run)):
        problem = check(path)
        if problem is None:
            return path, skipped
        skipped.append(problem)
    return None, skipped


def complete(run: Path) -> list[Path]:
    """All checkpoints with a manifest and files of the right sizes, oldest first. Digests are not computed."""
    return [path for path in _candidates(run) if check(path, digests=False) is None]


def check(path: Path, *, digests: bool = True) -> Problem | None:
    """Say what is wrong with a checkpoint; None when it is whole."""
    remedy = "it is passed over; delete the folder to be rid of this message"
    try:
        manifest = _manifest(path)
        for entry in manifest["files"]:
            file = path / entry["name"]
            if not file.is_file():
                return Problem(str(path), f"{entry['name']} is missing", remedy)
            if file.stat().st_size != entry["size"]:
                return Problem(
                    str(path), f"{entry['name']} is cut off ({file.stat().st_size} of {entry['size']} bytes)", remedy
                )
            if digests and digest.of_file(file) != entry["digest"]:
                return Problem(str(path), f"{entry['name']} is damaged", remedy)
    except FileNotFoundError:
        return Problem(str(path), "the checkpoint is incomplete, its manifest is missing", remedy)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Problem(str(path), f"the checkpoint cannot be read ({error})", remedy)
    return None


def read_meta(path: Path) -> dict[str, Any]:
    """The `meta` a checkpoint was saved with."""
    meta: dict[str, Any] = _manifest(path)["meta"]
    return meta


def step_of(path: Path) -> int:
    """The number of steps that are done in a checkpoint, from its folder's name."""
    match = _NAME.match(path.name)
    if match is None:
        raise ValueError(f"{path} is no checkpoint folder")
    return int(match.group(1))


def clean_staging(run: Path) -> list[str]:
    """Remove what cut-off saves left behind; call only while holding the run's lock. Returns the names removed."""
    removed = []
    for path in _staged(run):
        shutil.rmtree(path, ignore_errors=True)
        removed.append(path.name)
    for path in _folder(run).glob(f"{_REPLACED}*"):
        # Without a whole successor (a kill between the two renames of _publish) it is still what the run resumes from.
        if check(path.with_name(path.name.removeprefix(_REPLACED)), digests=False) is None:
            _remove(path)
    return removed


def is_disk_full(error: BaseException) -> bool:
    """Tell whether an error means that the disk is full (safetensors wraps the system's error in one of its own)."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    text = str(error)
    told = any(f"os error {number})" in text for number in _FULL_IN_RUST)
    return told and type(error).__name__ == "SafetensorError"


def _folder(run: Path) -> Path:
    return run / "checkpoints"


def _candidates(run: Path) -> list[Path]:
    """Every folder named like a checkpoint, oldest first; of two of one step the replaced one first."""
    folder = _folder(run)
    found = [path for path in folder.iterdir() if path.is_dir() and _NAME.match(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: (step_of(path), not path.name.startswith(_REPLACED)))


def _staged(run: Path) -> list[Path]:
    return sorted(_folder(run).glob(f"{_STAGING}*"))


def _manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    if manifest["format"] != _FORMAT:
        raise ValueError(f"format {manifest['format']} is not known to this version")
    return manifest


def _cut_off(path: Path) -> Problem:
    name = path.name.removeprefix(_STAGING).rsplit("-", 2)[0]
    return Problem(str(path), f"the save of {name} was cut off", "it is passed over; the next start removes it")


def _seal(staging: Path, step: int, meta: dict[str, Any]) -> None:
    """Flush every file and folder, then write the manifest last."""
    paths = sorted(staging.rglob("*"))
    files = []
    for path in paths:
        if path.is_dir():
            fsync_folder(path)
            continue
        fsync_file(path)
        name = path.relative_to(staging).as_posix()
        files.append({"name": name, "size": path.stat().st_size, "digest": digest.of_file(path)})
    write_json(staging / MANIFEST, {"format": _FORMAT, "step": step, "files": files, "meta": meta})


def _publish(staging: Path, final: Path) -> None:
    """Give the staged folder its name. One of the same step is moved aside first and still found there after a kill."""
    aside = final.with_name(_REPLACED + final.name)
    if final.exists():
        if aside.exists():
            _remove(aside)
        move(final, aside)
    move(staging, final)
    fsync_folder(final.parent)
    if aside.exists():
        _remove(aside)


def _remove(path: Path) -> None:
    """Delete a checkpoint so that a kill on the way never leaves half of it under a name that counts."""
    doomed = path.with_name(f"{_STAGING}{path.name.removeprefix(_REPLACED)}-{os.getpid()}-{secrets.token_hex(4)}")
    move(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _rotate(run: Path, keep: int) -> None:
    """Delete all but the newest `keep` complete checkpoints. Incomplete ones are left for a person to look at."""
    for path in complete(run)[:-keep]:
        _remove(path)


def _require_space(folder: Path, need_bytes: int) -> None:
    if need_bytes and shutil.disk_usage(folder).free < need_bytes + _SPARE_BYTES:
        raise _disk_full(folder, need_bytes)


def _disk_full(folder: Path, need_bytes: int) -> DiskFull:
    free = format_bytes(shutil.disk_usage(folder).free)
    size = f", a checkpoint needs about {format_bytes(need_bytes)}" if need_bytes else ""
    return DiskFull(
        f"the disk is full: {free} free{size}",
        where=str(folder),
        remedy="free some space and save again; nothing is lost, older checkpoints are untouched",
    )
