"""`trainers run`: train what a preset says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainers.cli._options import CacheOption, PresetArgument, QuietOption, SetOption, preset_path


def run(
    preset: PresetArgument,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run's folder; one that holds a run is resumed.")
    ] = None,
    settings: SetOption = None,
    cache: CacheOption = None,
    quiet: QuietOption = False,
) -> int:
    """Train what a preset says. Starting again in the same folder resumes."""
    from trainers.launch import local

    return local.run(
        preset_path(preset),
        list(settings or ()),
        out=str(out) if out else None,
        cache=str(cache) if cache else None,
        quiet=quiet,
    )
