"""Start or resume a run in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainers.core.errors import UserError
from trainers.core.places import expanded


def run_folder(out: str | None, configured: str | None, name: str, base: Path) -> Path:
    """Where a run goes: `--out` is its own folder; `run.out` that of all runs, seen from the preset's folder `base`.

    With neither it is runs/NAME below the current folder.
    """
    if out is not None:
        return expanded(out).absolute()
    runs = base / expanded(configured) if configured else Path("runs")
    return runs.absolute() / name


def run(
    preset: Path | str,
    overrides: Sequence[str] = (),
    *,
    out: str | None = None,
    cache: str | None = None,
    quiet: bool = False,
) -> int:
    """Run a preset; a folder that holds this run already is resumed. Returns the exit code."""
    from trainers.engine.run import run as train
    from trainers.presets.load import load_preset

    _only_one_process()
    loaded = load_preset(preset, overrides)
    folder = run_folder(out, loaded.preset.run.out, loaded.preset.run.name or loaded.path.stem, loaded.folder)
    return train(loaded, folder, cache=Path(cache).absolute() if cache else None, quiet=quiet)


def resume(folder: Path, overrides: Sequence[str] = (), *, cache: str | None = None, quiet: bool = False) -> int:
    """Go on with the run in `folder`, with the preset it was started with."""
    from trainers.engine.run import require_run
    from trainers.engine.run import run as train
    from trainers.presets.load import load_preset

    _only_one_process()
    directory = require_run(folder.absolute())
    loaded = load_preset(directory.preset, overrides)
    return train(loaded, directory.folder, cache=Path(cache).absolute() if cache else None, quiet=quiet)


def _only_one_process() -> None:
    """Several processes that train apart would overwrite one another; say so instead."""
    announced = int(os.environ.get("WORLD_SIZE", "1"))
    if announced != 1:
        raise UserError(
            f"a launcher announced {announced} processes, but this version trains in one", where="WORLD_SIZE",
            remedy="start `trainers run` directly; it uses one device",
        )  # fmt: skip
