"""`trainers bench`: measurements of this machine and of the suite's own model. Benchmarks, not tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption

app = typer.Typer(name="bench", help="Measure the speed of a step, and the starter model.", no_args_is_help=True)


@app.command("step")
def step(
    pixels: Annotated[list[int] | None, typer.Option(min=64, help="Edge of the pictures. May be repeated.")] = None,
    precision: Annotated[
        Literal["fp32", "bf16", "both"], typer.Option(help="Of our loop; the plain one is always fp32.")
    ] = "both",
    batch: Annotated[int, typer.Option(min=1, help="Pictures in a step.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="How often both loops are measured in turn.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each loop in a round.")] = 6,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Compare a step of this suite with a plain loop that does the same work, on the same tensors."""
    from trainers.engine.benchmark import bench_step, render_bench

    measured = [
        bench_step(pixels=edge, batch=batch, precision=kind, rounds=rounds, steps=steps, threads=threads)
        for edge in pixels or (256, 64)
        for kind in (("fp32", "bf16") if precision == "both" else (precision,))
    ]
    if as_json:
        _output.document({"steps": [one.to_json() for one in measured]})
    else:
        typer.echo(render_bench(measured))


@app.command("starter")
def starter(
    packages: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the picture packages lie; models/starter/README.md names them.")
    ],
    model: Annotated[str, typer.Option(help="A model folder, or the one that comes along.")] = "builtin:starter",
    pictures: Annotated[int, typer.Option(min=1, help="How many pictures are painted and judged.")] = 200,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to put score.json and sheet.png.")] = None,
    classifier: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keeps the trained judge for next time.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score the starter model: how often a picture shows the subject, the look and the ground that were asked for."""
    from trainers.core import discover

    folder = discover.load("models", "starter", "family").Family().resolve(model, offline=True).folder
    scorer = discover.load("models", "starter", "scorer")
    report = scorer.bench(folder, packages, pictures, out, cache=classifier)
    if as_json:
        _output.document(report)
    else:
        _output.table(("right", "share"), [(name, f"{share:.1%}") for name, share in report["shares"].items()])
