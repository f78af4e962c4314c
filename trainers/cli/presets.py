"""`trainers presets`: the library of presets that come with the suite, and what every setting means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A name from `presets list`.")]

app = typer.Typer(name="presets", help="List, show and copy presets; explain every setting.", no_args_is_help=True)


@app.command("list")
def list_presets(as_json: JsonOption = False) -> None:
    """List the presets that come with the suite: goal, machine, time."""
    from trainers.presets import library

    cards = library.list_presets()
    if as_json:
        _output.document({"presets": cards})
    else:
        _output.table(("name", "goal", "machine", "time"), [(c.name, c.goal, c.machine, c.time) for c in cards])


@app.command("show")
def show(preset: NameArgument) -> None:
    """Print a preset with its comments."""
    from trainers.presets import library

    typer.echo(library.show(preset), nl=False)


@app.command("copy")
def copy(
    preset: NameArgument,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; never over a file that exists.")],
) -> None:
    """Copy a preset to a file of your own; its relative folders keep pointing to the same places."""
    from trainers.presets import library

    target = library.copy(preset, out)
    typer.echo(f"{target}\n  next: trainers check {target} --data")


@app.command("explain")
def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A setting (optimizer.lr) or a table (data).")] = "",
    as_json: JsonOption = False,
) -> None:
    """Explain a setting: what it does, its unit, bounds and default. Without a KEY: every table."""
    from trainers.presets import explain as texts

    found = (texts.explain(key),) if key else texts.explain_all()
    if as_json:
        _output.document(found[0] if key else {"tables": found})
    else:
        typer.echo("\n\n".join(texts.render(explanation) for explanation in found))
