"""`trainers plan`: what a run would do, before it does it."""

from __future__ import annotations

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption, PresetArgument, SetOption, preset_path


def plan(preset: PresetArgument, settings: SetOption = None, as_json: JsonOption = False) -> None:
    """Show what a run would do: steps, epochs, micro-batches, memory; nothing is loaded."""
    from trainers.engine.planning import make_plan
    from trainers.engine.render import render_plan
    from trainers.presets.load import load_preset

    made = make_plan(load_preset(preset_path(preset), list(settings or ())))
    if as_json:
        _output.document(made.to_json())
        return
    for line in render_plan(made):
        typer.echo(line)
