"""`trainers check`: find everything that is wrong with a preset and its pictures before anything is loaded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption, PresetArgument, SetOption, preset_path
from trainers.core.errors import EXIT_DONE, EXIT_USER, Problem, UserError

if TYPE_CHECKING:
    from trainers.data.report import DataReport
    from trainers.presets.load import Loaded


def check(
    preset: PresetArgument,
    data: Annotated[bool, typer.Option("--data", help="Also open every picture and caption, and report.")] = False,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Find everything that is wrong with a preset (and, with --data, its pictures) before anything is loaded."""
    from trainers.presets.load import load_preset

    loaded = load_preset(preset_path(preset), list(settings or ()))
    report, problems = _look_at_data(loaded) if data else (None, ())
    if as_json:
        _output.document(_answer(loaded, report, problems))
    else:
        _show(loaded, report, problems)
    return EXIT_USER if problems else EXIT_DONE


def _look_at_data(loaded: Loaded) -> tuple[DataReport, tuple[Problem, ...]]:
    """Report on the pictures; where no plan can be made of them, on what was found, with what is wrong."""
    from trainers.engine.planning import prepare

    try:
        return prepare(loaded).report, ()
    except UserError as error:
        return _without_plan(loaded, error.problems)


def _without_plan(loaded: Loaded, problems: tuple[Problem, ...]) -> tuple[DataReport, tuple[Problem, ...]]:
    """Report on what was found; captions are counted unless it is the tokenizer that can't be read."""
    from trainers.data.report import data_report
    from trainers.data.scan import scan
    from trainers.engine.captions import counters_of
    from trainers.presets.plugins import facts_of

    preset = loaded.preset
    found = scan(preset.data, loaded.folder)
    try:
        counters = counters_of(preset, facts_of(preset.model.family), loaded.folder)
        return data_report(found, {}, counters=counters), problems
    except UserError as error:
        return data_report(found, {}), tuple(dict.fromkeys((*problems, *error.problems)))


def _answer(loaded: Loaded, report: DataReport | None, problems: tuple[Problem, ...]) -> dict[str, Any]:
    answer: dict[str, Any] = {"ok": not problems, "preset": str(loaded.path), "notes": list(loaded.notes)}
    if report is not None:
        answer |= {"data": report.as_json(), "problems": [asdict(problem) for problem in problems]}
    return answer


def _show(loaded: Loaded, report: DataReport | None, problems: tuple[Problem, ...]) -> None:
    _output.notes(loaded.notes, "Notes:")
    if report is None:
        typer.echo(f"{loaded.path.name} is right (--data also looks at the pictures)")
        return
    from trainers.data.report_view import render

    _output.rich(render(report))
    if problems:
        _output.problems(problems, as_json=False)
    else:
        typer.echo(f"{loaded.path.name} and its pictures are right")
