"""Class pictures for prior preservation, painted by the base model before anything is trained.

Ruiz et al. 2023, "DreamBooth": the model is kept from forgetting what the class looks like in general. Each picture is
keyed by (seed, prompt, number), written whole or not at all, so an interrupted stage goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.core.atomic import write_bytes
from trainers.core.digest import of_bytes
from trainers.core.errors import Interrupted, UserError
from trainers.core.units import format_seconds
from trainers.data.listing import resolve
from trainers.engine.preview import PreviewSettings
from trainers.engine.sheet import save_picture
from trainers.engine.signals import StopRequest, stop_requested
from trainers.rundir.events import EventLog
from trainers.rundir.layout import RunDir

if TYPE_CHECKING:
    from trainers.data.config import Concept
    from trainers.engine.preview import Painter
    from trainers.presets.load import Loaded

_ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}
_BATCH = 8


def missing(concept: Concept, base: Path) -> tuple[Path, int]:
    """The folder of a class concept and how many pictures it still lacks."""
    folder = resolve(base, concept.folder)
    have = sum(path.suffix.lower() in _ENDINGS for path in folder.iterdir()) if folder.is_dir() else 0
    return folder, max(0, concept.generate - have)


def make_missing(loaded: Loaded, run: RunDir, events: EventLog, stop: StopRequest, say: Callable[[str], None]) -> None:
    """Paint the class pictures that the preset asks for and that do not exist yet."""
    wanted = [
        (concept, *missing(concept, loaded.folder))
        for concept in loaded.preset.data.concepts
        if concept.role == "class" and concept.generate
    ]
    wanted = [entry for entry in wanted if entry[2]]
    if not wanted:
        return
    from trainers.engine.sampling import open_base

    def leave_when_asked() -> None:
        if stop_requested(stop, run):
            raise Interrupted(stop.reason or "stop")

    painter, size = open_base(loaded)
    painter.on_step = leave_when_asked
    preview = loaded.preset.preview
    for concept, folder, count in wanted:
        say(f'painting {count} class pictures of "{concept.prompt}" with the base model into {folder}')
        _make_folder(folder)
        settings = PreviewSettings(
            (str(concept.prompt),), preview.negative, size, preview.steps, preview.guidance, loaded.preset.run.seed,
            sampler=preview.sampler,
        )  # fmt: skip
        for done, total, seconds in _paint(painter, settings, folder, concept.generate, count):
            left = format_seconds(seconds / done * (total - done))
            events.write("status", state="preparing", message=f"class pictures {done}/{total}, {left} left")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder for class pictures cannot be made ({error.strerror})",
            where=str(folder),
            remedy="name another data.concepts folder, one that can be written",
        ) from error


def _paint(
    painter: Painter, settings: PreviewSettings, folder: Path, numbers: int, lacking: int
) -> Iterator[tuple[int, int, float]]:
    """Paint the `lacking` pictures of one concept in batches; yields (done, total, seconds) after each.

    The number in a picture's name is the key of its noise, so a stop changes nothing about the others.
    """
    prompt = settings.prompts[0]
    tag = of_bytes(prompt.encode(), size=4)
    names = [f"class-{tag}-{number:05d}" for number in range(numbers)]
    wanted = [number for number, name in enumerate(names) if not (folder / f"{name}.png").exists()][:lacking]
    began = time.monotonic()
    for start in range(0, len(wanted), _BATCH):
        batch = wanted[start : start + _BATCH]
        painted = painter.paint(replace(settings, prompts=(prompt,) * len(batch), numbers=tuple(batch)))
        for number, picture in zip(batch, painted, strict=True):
            write_bytes(folder / f"{names[number]}.txt", prompt.encode())
            save_picture(picture, folder / f"{names[number]}.png")
        yield start + len(batch), len(wanted), time.monotonic() - began
