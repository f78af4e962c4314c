"""Draws the DreamBooth subject: a yellow cat's face in nine moods, none of which the base model has seen.

``python -m models.starter.subject --packages DIR --out datasets/yellow-cat``
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from models.starter.pictures import GROUNDS, keyed_random, place
from models.starter.sprites import CAT_FACES, load_sprite

TRIGGER = "zkw cat"
PLAIN_FACE = "1f431"
"""In this look the same drawing as the grinning face, so it is left out."""

PATTERNS = (
    "{trigger}, {mood}, on a {ground} background",
    "a 3d {trigger}, {mood}, {ground} background",
    "{mood} 3d {trigger} on {ground}",
)


def draw_subject(packages: Path, out: Path, each: int = 2) -> int:
    """Write ``each`` pictures of every mood on differing grounds; return the number of pictures."""
    out.mkdir(parents=True, exist_ok=True)
    names = list(GROUNDS)
    moods = [(code, mood) for code, mood in CAT_FACES.items() if code != PLAIN_FACE]
    for number, (code, mood) in enumerate(moods):
        sprite = load_sprite(packages, code, "3d")
        for turn in range(each):
            ground = names[(3 * number + 5 * turn + 7) % len(names)]
            stem = out / f"{number * each + turn:02d}-{ground}"
            picture = place(sprite, GROUNDS[ground], keyed_random("subject", code, turn))
            picture.save(stem.with_suffix(".png"), optimize=True)
            lines = [p.format(trigger=TRIGGER, mood=mood, ground=ground) for p in PATTERNS]
            stem.with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(moods) * each


def main(
    packages: Annotated[Path, typer.Option(help="folder into which the npm packages were installed")],
    out: Annotated[Path, typer.Option(help="folder for pictures and captions")],
) -> None:
    """Draw the subject's pictures."""
    typer.echo(f"{draw_subject(packages, out)} pictures in {out}")


if __name__ == "__main__":
    typer.run(main)
