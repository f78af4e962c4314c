"""`trainers bench`: measurements of this machine and of the suite's own model. Benchmarks, not tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption

app = typer.Typer(name="bench", help="Measure the speed of a step, and the starter model.", no_args_is_help=True)


@app.command("step")
def step(
    precision: Annotated[
        Literal["fp32", "bf16", "both"], typer.Option(help="Of our loop; the plain one is always fp32.")
    ] = "both",
    rounds: Annotated[int, typer.Option(min=1, help="How often both loops are measured in turn.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each loop in a round.")] = 6,
    full: Annotated[
        bool, typer.Option("--full", help="Measure the U-Net of SD 1.5 at its full size, too: 12 GB of memory.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare step, start, caching and memory of this suite with the plainest loops that do the same work."""
    from rich.console import Console

    from trainers.engine.bench.measure import Bench, bench_step
    from trainers.engine.bench.table import render_bench

    precisions = ("fp32", "bf16") if precision == "both" else (precision,)
    with Console(stderr=True).status("measuring") as status:
        measured = bench_step(Bench(rounds=rounds, steps=steps, full=full), precisions, status.update)
    if as_json:
        _output.document(measured)
    else:
        _output.rich(render_bench(measured))


@app.command("starter")
def starter(
    packages: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the picture packages lie; you are told how to get absent ones.")
    ] = Path("starter-data/packages"),
    model: Annotated[str, typer.Option(help="A model folder, or the one that comes along.")] = "builtin:starter",
    pictures: Annotated[int, typer.Option(min=1, help="How many pictures are painted and judged.")] = 200,
    guidance: Annotated[
        float | None, typer.Option(min=0, help="How strictly the prompt is followed; left out: as recommended.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Denoising steps; left out: as recommended.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to put score.json and sheet.png.")] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Ask for every subject ever trained, not only for those it was finished on.")
    ] = False,
    classifier: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keeps the trained judge; left out: beside the packages.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score the starter model: how often a picture shows the subject, the look and the ground that were asked for."""
    from rich.console import Console

    from trainers.core import discover

    sprites = discover.load("models", "starter", "sprites")
    sprites.check_packages(packages)  # before torch is loaded
    scorer = discover.load("models", "starter", "scorer")
    folder = discover.load("models", "starter", "family").Family().resolve(model, offline=True).folder
    sampling = scorer.choose_sampling(guidance, steps)
    with Console(stderr=True).status("opening the packages") as status:
        report = scorer.bench(
            folder,
            packages,
            pictures,
            sampling=sampling,
            out=out,
            classifier=classifier,
            say=status.update,
            among=None if wide else sprites.core_numbers(),
        )
    if as_json:
        _output.document(report)
    else:
        _show_score(report)


def _show_score(report: dict[str, Any]) -> None:
    """Print the shares of the model and of its judge as tables, then how it was done."""
    columns = ("subject", "look", "ground", "all three")
    groups = report["shares"].items()
    rows = [(group, str(row["pictures"]), *(f"{row[name]:.1%}" for name in columns)) for group, row in groups]
    _output.table(("right in", "pictures", *columns), rows, "What the classifier finds as it was asked for")
    judged = [(what, *(f"{row[name]:.1%}" for name in columns[:3])) for what, row in report["classifier"].items()]
    _output.table(("right in", *columns[:3]), judged, "How good the classifier is")
    sampling, seconds = report["sampling"], report["seconds"]
    typer.echo(
        f"guidance {sampling['guidance']:g}, {sampling['steps']} steps; "
        f"classifier {seconds['classifier']:.0f} s, painting {seconds['painting']:.0f} s"
    )
