"""The `trainers` command: collects the commands and turns every way to end into a message and an exit code.

Exit codes: 0 done, 64 preset, data or command line is wrong, 75 stopped and can be resumed, 1 anything else.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from trainers.cli import _output, bench, check, doctor, export, models, plan, presets, resume, run, sample
from trainers.core.errors import EXIT_BUG, EXIT_DONE, EXIT_RESUMABLE, EXIT_USER, Interrupted, Problem, UserError

VERBOSE_FLAGS = ("-v", "--verbose")

app = typer.Typer(
    name="trainers",
    help="Train image models on your own pictures.",
    epilog="Begin with: trainers run quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _file in (run, resume, check, plan, sample, export, models, doctor):
    app.command()(getattr(_file, _file.__name__.rpartition(".")[2]))
app.add_typer(presets.app)
app.add_typer(bench.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from trainers import __version__

        typer.echo(f"trainers {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option(*VERBOSE_FLAGS, help="Show where an error came from; may stand after a command, too.")
    ] = False,
) -> None:
    """Train image models on your own pictures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `arguments` are those of the process when left out."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    verbose = any(flag in given for flag in VERBOSE_FLAGS)
    as_json = "--json" in given
    _output.make_printable()
    try:
        code = get_command(app).main(
            [argument for argument in given if argument not in VERBOSE_FLAGS],
            prog_name="trainers",
            standalone_mode=False,
        )
    except Exception as error:  # noqa: BLE001 - the one place where every error becomes a message and an exit code
        if verbose:
            traceback.print_exc()
        return _report(error, as_json)
    # typer answers 130 for Ctrl-C, which to us is one of the other ways to fail: there is nothing to resume.
    return {None: EXIT_DONE, 130: EXIT_BUG}.get(code, code if isinstance(code, int) else EXIT_DONE)


def _report(error: Exception, as_json: bool) -> int:
    if isinstance(error, UserError):
        _output.problems(error.problems, as_json)
        return EXIT_USER
    if isinstance(error, Interrupted):
        _output.problems([Problem("", str(error) or "stopped; it can be resumed")], as_json)
        return EXIT_RESUMABLE
    if isinstance(error, typer.Abort):
        return EXIT_BUG
    if hasattr(error, "format_message"):  # typer's own complaints about the command line
        _output.problems([_usage_problem(error)], as_json)
        return EXIT_USER
    _output.problems([_unexpected_problem(error)], as_json)
    return EXIT_BUG


def _usage_problem(error: Exception) -> Problem:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "trainers"
    message = str(error.format_message())  # type: ignore[attr-defined]
    return Problem(command, message, f"see: {command} --help")


def _unexpected_problem(error: Exception) -> Problem:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    remedy = "call the same again with -v for the whole trace; if it is no full disk or missing right, please report it"
    return Problem(place, f"{type(error).__name__}: {error}", remedy)


if __name__ == "__main__":
    sys.exit(main())
