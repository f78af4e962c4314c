"""Renders the starter model's training set: an ordinary folder of pictures with caption files.

Run ``python -m models.starter.data --packages DIR --out DIR``; ``sprites.py`` tells which packages.
Every subject is drawn in every look on nine of the ten grounds; the tenth is kept for the score. A
picture is ``NNN-subject_look_ground.png`` (128x128 RGB); the ``.txt`` of the same name holds
alternative captions, one a line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from models.starter.captions import write_captions
from models.starter.pictures import GROUNDS, keyed_random, place
from models.starter.sprites import LOOKS, core_numbers, iterate_sprites, load_subjects

NOTICE = """The pictures in this folder were composed from
- Fluent Emoji 3D and Fluent Emoji Flat, (c) Microsoft Corporation, MIT licence
  (npm @lobehub/fluent-emoji-3d, @iconify-json/fluent-emoji-flat);
- Noto Emoji, (c) Google LLC, Apache License 2.0 (npm @iconify-json/noto).
Names: emojibase-data, MIT licence.
"""


def slug(text: str) -> str:
    """Return the text in lower case with dashes, fit for a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def unseen_ground(subject: int, look: int) -> int:
    """Return the number of the one ground on which this subject and look are never shown in training."""
    return (3 * subject + 4 * look) % len(GROUNDS)


def render(packages: Path, out: Path, seed: int = 0, *, core: bool = False) -> int:
    """Write all pictures and captions to ``out``, or those of the core subjects; return the number of pictures."""
    out.mkdir(parents=True, exist_ok=True)
    subjects = load_subjects(packages)
    count = 0
    wanted = set(core_numbers()) if core else range(len(subjects))
    for number, look_index, sprite in iterate_sprites(packages):
        if number not in wanted:
            continue
        subject, look = subjects[number], LOOKS[look_index]
        for index, (ground, colour) in enumerate(GROUNDS.items()):
            if index == unseen_ground(number, look_index):
                continue
            rng = keyed_random(seed, subject.code, look, ground)
            stem = out / f"{number:03d}-{slug(subject.name)}_{look}_{ground}"
            place(sprite, colour, rng).save(stem.with_suffix(".png"), compress_level=4)
            lines = write_captions(subject.names, look, ground, rng)
            stem.with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
            count += 1
    (out / "NOTICE").write_text(NOTICE, encoding="utf-8")
    return count


def main(
    packages: Annotated[Path, typer.Option(help="folder into which the npm packages were installed")],
    out: Annotated[Path, typer.Option(help="folder for pictures and captions")],
    seed: Annotated[int, typer.Option(help="key of the small variations and of the captions")] = 0,
    core: Annotated[bool, typer.Option("--core", help="only the subjects of subjects-core.txt")] = False,
) -> None:
    """Render the training set."""
    typer.echo(f"{render(packages, out, seed, core=core)} pictures in {out}")


if __name__ == "__main__":
    typer.run(main)
