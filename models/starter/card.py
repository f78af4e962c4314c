"""Writes the measured figures into the model card: ``python -m models.starter.card``.

Scores the embedded model on the subjects of ``subjects-core.txt``, keeps the figures in ``score.json`` and the first
pictures in ``sheet.png`` beside the card, and replaces what stands between the card's two marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

HOME = Path(__file__).parent
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
COLUMNS = ("subject", "look", "ground", "all three")


def _row(name: str, *cells: str) -> str:
    return "| " + " | ".join((name, *cells)) + " |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def describe(report: Mapping[str, Any]) -> str:
    """Return the figures of a score as Markdown."""
    sampling, everything = report["sampling"], report["shares"]["all pictures"]
    low, high = report["margin"]["all three"]
    lines = [
        f"{report['pictures']} prompts with fixed seeds, guidance {sampling['guidance']:g}, {sampling['steps']} steps,",
        "nothing chosen and nothing repeated.",
        f"{_percent(everything['all three'])} show subject, look and ground as asked for",
        f"(95 % interval {_percent(low)} to {_percent(high)}).",
        "",
        _row("asked for", "pictures", *COLUMNS),
        _row("---", *("---:",) * (1 + len(COLUMNS))),
    ]
    for group, row in report["shares"].items():
        lines.append(_row(group, str(row["pictures"]), *(_percent(row[name]) for name in COLUMNS)))
    lines += ["", _row("the judge itself", *COLUMNS[:3]), _row("---", *("---:",) * 3)]
    for group, row in report["classifier"].items():
        lines.append(_row(group, *(_percent(row[name]) for name in COLUMNS[:3])))
    return "\n".join(lines)


def fill_card(card: str, report: Mapping[str, Any]) -> str:
    """Return the card with the figures of a score between its marks."""
    before, _, rest = card.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"the card lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{describe(report)}\n{END}{after}"


def main(
    packages: Annotated[Path, typer.Option(help="folder into which the npm packages were installed")] = Path(
        "starter-data/packages"
    ),
    model: Annotated[Path, typer.Option(help="model folder in diffusers' layout")] = HOME / "weights",
    pictures: Annotated[int, typer.Option(help="number of pictures")] = 200,
) -> None:
    """Score the model and write the figures into the card."""
    from models.starter.scorer import bench
    from models.starter.sprites import core_numbers

    report = bench(
        model, packages, pictures, out=HOME, say=lambda text: typer.echo(text, err=True), among=core_numbers()
    )
    card = HOME / "README.md"
    card.write_text(fill_card(card.read_text(encoding="utf-8"), report), encoding="utf-8")
    typer.echo(describe(report))


if __name__ == "__main__":
    typer.run(main)
