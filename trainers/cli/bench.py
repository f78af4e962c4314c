"""`trainers bench`: measurements of this machine and of the suite's own models. Benchmarks, not tests."""

from __future__ import annotations

from typing import Annotated

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption

app = typer.Typer(name="bench", help="Measure the speed of a step, and the starter model.", no_args_is_help=True)


@app.command("step")
def step(
    rounds: Annotated[int, typer.Option(min=1, help="How often both loops are measured in turn.")] = 5,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    as_json: JsonOption = False,
) -> None:
    """Compare a step of this suite with a bare forward, backward and AdamW on the same tensors."""
    from trainers.engine.benchmark import bench_step, render_bench

    measured = bench_step(rounds=rounds, precision=precision)
    if as_json:
        _output.document(measured)
    else:
        _output.rich(render_bench(measured))


@app.command("starter")
def starter(
    pictures: Annotated[int, typer.Option(min=1, help="How many pictures are painted and judged.")] = 200,
    as_json: JsonOption = False,
) -> None:
    """Score the starter model: how often a picture shows the subject and the ground colour that were asked for."""
    from trainers.core import discover

    score = discover.load("models", "starter", "score").score_pictures(pictures)
    if as_json:
        _output.document(score)
    else:
        _output.table(("what", "share"), [(name, f"{value:.1%}") for name, value in score["shares"].items()])
