"""Arguments and options that several commands share, and how a preset is found by path or by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from trainers.core.errors import UserError

SMALLEST_PIXELS = 8

PresetArgument = Annotated[
    str, typer.Argument(metavar="PRESET", help="A preset file, or the name of one in the library (quickstart).")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as optimizer.lr=1e-4. May be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", metavar="DIR", help="Where prepared pictures are kept between runs.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors; events.jsonl tells all.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.")]


def preset_path(preset: str) -> Path:
    """Find a preset by path, or by its name in the library ("quickstart", "sd15/lora-12gb")."""
    from trainers.presets.library import locate

    return locate(preset).resolve()


def run_folder(folder: Path) -> Path:
    """Check that a folder is one of a run, and return it in full."""
    if (folder / "preset.toml").is_file():
        return folder.resolve()
    what = "this is no run folder: it holds no preset.toml" if folder.is_dir() else "there is no such folder"
    raise UserError(what, where=str(folder), remedy="give the folder that `trainers run` named")


def size_pixels(text: str) -> tuple[int, int]:
    """Read "512" or "768x512" (width x height, as people say it) and return (height, width)."""
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text.lower())
    width, height = (int(number or match[1]) for number in match.groups()) if match else (0, 0)
    if min(width, height) < SMALLEST_PIXELS:
        raise UserError(f'"{text}" is no size', where="--size", remedy='write "512" or "768x512" (width x height)')
    return height, width
