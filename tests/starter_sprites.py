"""Stand-ins for the starter model's drawings: shapes drawn with Pillow, so that no package is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from models.starter import classifier, data, scorer, sprites
from models.starter.sprites import LOOKS, Subject

SUBJECTS = [
    Subject("aa", ("disc", "round thing")),
    Subject("bb", ("square",)),
    Subject("cc", ("umbrella",)),
]
COLOURS = {"3d": (220, 60, 60, 255), "cartoon": (60, 200, 90, 255), "flat": (70, 80, 230, 255)}


def draw_sprite(_packages: Path, code: str, look: str) -> Image.Image:
    """One shape a subject, one colour a look."""
    sprite = Image.new("RGBA", (60, 48))
    pen = ImageDraw.Draw(sprite)
    if code == "aa":
        pen.ellipse((0, 0, 59, 47), fill=COLOURS[look])
    elif code == "bb":
        pen.rectangle((0, 0, 59, 47), fill=COLOURS[look])
    else:
        pen.polygon([(0, 47), (59, 47), (30, 0)], fill=COLOURS[look])
    return sprite


def use_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every module of the starter model see the stand-ins in place of the packages."""
    for module in (sprites, data, classifier, scorer):
        monkeypatch.setattr(module, "load_subjects", lambda packages: list(SUBJECTS))
    monkeypatch.setattr(sprites, "load_sprite", draw_sprite)
    monkeypatch.setattr(scorer, "check_packages", lambda packages: None)


__all__ = ["LOOKS", "SUBJECTS", "draw_sprite", "use_stand_ins"]
