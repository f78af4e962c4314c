"""`trainers export`: write what a run has learned in the layouts that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption, RunArgument, run_folder


def export(
    run_dir: RunArgument,
    layouts: Annotated[
        list[str] | None,
        typer.Option("--layout", help="kohya, diffusers, single_file. May be repeated; left out: as the preset says."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Left out: exports/ of the run.")] = None,
    step: Annotated[int | None, typer.Option(min=1, help="The checkpoint of this step; left out: the newest.")] = None,
    precision: Annotated[
        Literal["fp32", "fp16", "bf16"] | None, typer.Option(help="Of the file; left out: as the preset says.")
    ] = None,
    averaged: Annotated[
        bool, typer.Option("--averaged/--live", help="The averaged weights, where there are any.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write what a run has learned for other programs; each file is read back and compared."""
    folder = run_folder(run_dir)
    from trainers.engine.exporting import export as write

    written = write(
        folder,
        layouts=layouts or None,
        out=out.resolve() if out else None,
        step=step,
        precision=precision,
        averaged=averaged,
    )
    if as_json:
        _output.document({"ok": True, "exports": written})
        return
    for exported in written:
        typer.echo(exported.sentence())
