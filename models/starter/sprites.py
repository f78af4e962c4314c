"""Reads the emoji packages: one RGBA sprite for every subject and look.

A *sprite* is the bare picture on transparency, cropped to its opaque part. The packages are three
ordinary npm packages plus the names of every emoji; ``npm install --prefix DIR`` puts them in one folder.
SVG looks are rendered with ``resvg-py``. ``NPM_PACKAGES`` and ``RENDERER`` name the versions.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from trainers.core.errors import Problem, UserError

NPM_PACKAGES = (
    "@lobehub/fluent-emoji-3d@1.1.0",
    "@iconify-json/noto@1.2.9",
    "@iconify-json/fluent-emoji-flat@1.2.6",
    "emojibase-data@17.0.0",
)
RENDERER = "resvg-py==0.5.0"

LOOKS = ("3d", "cartoon", "flat")
"""The style words, in the order in which the scorer numbers them."""

SVG_PACKAGES = {"cartoon": "@iconify-json/noto", "flat": "@iconify-json/fluent-emoji-flat"}
RENDER_SIZE = 256

CAT_FACES = {
    "1f431": "cat face",
    "1f63a": "grinning",
    "1f638": "grinning with closed eyes",
    "1f639": "laughing with tears of joy",
    "1f63b": "with heart eyes",
    "1f63c": "with a wry smile",
    "1f63d": "kissing",
    "1f640": "scared",
    "1f63f": "crying",
    "1f63e": "angry",
}
"""Code point -> mood of the cat faces: the DreamBooth subject, kept out of the base model's pictures."""


@dataclass(frozen=True)
class Subject:
    """One thing that can be asked for: its code point and its names, the class name first."""

    code: str
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """The class name."""
        return self.names[0]


def modules_dir(packages: Path) -> Path:
    """Return the folder that holds the packages, with or without its ``node_modules`` level."""
    inner = Path(packages) / "node_modules"
    return inner if inner.is_dir() else Path(packages)


def check_packages(packages: Path) -> None:
    """Raise one error that names every absent package and the commands that bring them."""
    folder = modules_dir(packages)
    absent = [package for package in NPM_PACKAGES if not (folder / package.rpartition("@")[0]).is_dir()]
    problems: list[Problem] = []
    if absent:
        names = ", ".join(package.rpartition("@")[0] for package in absent)
        command = f"npm install --prefix {packages} {' '.join(absent)}"
        problems.append(Problem(str(packages), f"these picture packages are not here: {names}", command))
    if importlib.util.find_spec("resvg_py") is None:
        problems.append(Problem("", "resvg-py, which draws SVG pictures, is not installed", f"pip install {RENDERER}"))
    if problems:
        raise UserError(problems)


@functools.cache
def _labels(packages: Path) -> dict[str, str]:
    """Return emojibase label -> lower-case code points joined by dashes."""
    path = modules_dir(packages) / "emojibase-data" / "en" / "data.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {entry["label"]: entry["hexcode"].lower() for entry in entries}


def load_subjects(packages: Path) -> list[Subject]:
    """Read ``subjects.txt`` and find each label's code point; unknown labels are an error."""
    labels = _labels(Path(packages))
    subjects: list[Subject] = []
    for line in _entries("subjects.txt"):
        label, _, names = (part.strip() for part in line.partition("="))
        if label not in labels:
            raise UserError(f"no emoji is called {label!r}", where="subjects.txt", remedy=f"use {NPM_PACKAGES[-1]}")
        subjects.append(Subject(labels[label], tuple(n.strip() for n in (names or label).split("|"))))
    _check_distinct(subjects)
    return subjects


def core_numbers() -> tuple[int, ...]:
    """The numbers, in the wide list, of the subjects that the shipped weights are finished on."""
    wide, core = (_entries(name) for name in ("subjects.txt", "subjects-core.txt"))
    return tuple(wide.index(line) for line in core)


def _entries(name: str) -> list[str]:
    """The lines of a subject list that name a subject."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _check_distinct(subjects: list[Subject]) -> None:
    """Refuse names that belong to two subjects and subjects that are cat faces."""
    owner: dict[str, str] = {}
    for subject in subjects:
        if subject.code.split("-")[0] in CAT_FACES:
            raise ValueError(f"{subject.name!r} is a cat face, which the base model must not see")
        for name in subject.names:
            if owner.setdefault(name, subject.code) != subject.code:
                raise ValueError(f"the name {name!r} belongs to two subjects")


@functools.cache
def _icons(packages: Path, package: str) -> tuple[dict, dict, int]:
    """Return one iconify package: code points -> icon name, the icons, and their default size."""
    folder = modules_dir(packages) / package
    chars = json.loads((folder / "chars.json").read_text(encoding="utf-8"))
    data = json.loads((folder / "icons.json").read_text(encoding="utf-8"))
    icons = dict(data["icons"])
    for alias, entry in data.get("aliases", {}).items():
        if entry["parent"] in icons:
            icons[alias] = {**icons[entry["parent"]], **entry}
    return chars, icons, int(data.get("width", 16))


def _render_svg(packages: Path, package: str, code: str) -> Image.Image:
    """Draw one icon of an iconify package as RGBA, ``RENDER_SIZE`` pixels a side."""
    import resvg_py

    chars, icons, default = _icons(packages, package)
    name = chars.get(code) or chars.get(code.removesuffix("-fe0f"))
    if name is None:
        raise KeyError(f"{package} has no {code}")
    icon = icons[name]
    width, height = icon.get("width", default), icon.get("height", default)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}">{icon["body"]}</svg>'
    )
    png = resvg_py.svg_to_bytes(svg_string=svg, width=RENDER_SIZE, height=RENDER_SIZE)
    return Image.open(io.BytesIO(bytes(png))).convert("RGBA")


def load_sprite(packages: Path, code: str, look: str) -> Image.Image:
    """Return one sprite as RGBA, cropped to the pixels that are not fully transparent."""
    packages = Path(packages)
    if look in SVG_PACKAGES:
        picture = _render_svg(packages, SVG_PACKAGES[look], code)
    else:
        folder = modules_dir(packages) / "@lobehub" / "fluent-emoji-3d" / "assets"
        bare = code.removesuffix("-fe0f")
        path = next((p for c in (code, bare, bare + "-fe0f") if (p := folder / f"{c}.webp").is_file()), None)
        if path is None:
            raise KeyError(f"fluent-emoji-3d has no {code}")
        picture = Image.open(path).convert("RGBA")
    box = picture.getchannel("A").point(lambda a: 255 if a > 8 else 0).getbbox()
    return picture.crop(box)


def iterate_sprites(packages: Path) -> Iterator[tuple[int, int, Image.Image]]:
    """Yield (subject number, look number, sprite) for every subject in every look."""
    for number, subject in enumerate(load_subjects(packages)):
        for index, look in enumerate(LOOKS):
            yield number, index, load_sprite(packages, subject.code, look)
