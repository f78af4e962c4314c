"""Class pictures for prior preservation, painted by the base model before anything is trained.

Ruiz et al. 2023, "DreamBooth": the model is kept from forgetting what the class looks like in general. Each picture is
keyed by (seed, prompt, number), written whole or not at all, so an interrupted stage goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.core.atomic import write_bytes
from trainers.core.digest import of_bytes
from trainers.core.errors import Interrupted, UserError
from trainers.core.units import format_seconds
from trainers.engine.signals import StopRequest
from trainers.rundir.events import EventLog

if TYPE_CHECKING:
    from trainers.data.config import Concept
    from trainers.presets.load import Loaded

_ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}
_BATCH = 8


def missing(concept: Concept, base: Path) -> tuple[Path, int]:
    """The folder of a class concept and how many pictures it still lacks."""
    folder = Path(concept.folder).expanduser()
    folder = folder if folder.is_absolute() else base / folder
    have = sum(path.suffix.lower() in _ENDINGS for path in folder.iterdir()) if folder.is_dir() else 0
    return folder, max(0, concept.generate - have)


def make_missing(loaded: Loaded, cache: Path, events: EventLog, stop: StopRequest, say: Callable[[str], None]) -> None:
    """Paint the class pictures that the preset asks for and that do not exist yet."""
    wanted = [
        (concept, *missing(concept, loaded.path.parent))
        for concept in loaded.preset.data.concepts
        if concept.role == "class" and concept.generate
    ]
    wanted = [entry for entry in wanted if entry[2]]
    if not wanted:
        return
    from trainers.engine.sampling import open_base

    painter, size = open_base(loaded)
    for concept, folder, count in wanted:
        say(f'painting {count} class pictures of "{concept.prompt}" with the base model into {folder}')
        _make_folder(folder)
        _paint(painter, concept, folder, loaded, size, events, stop)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the folder for class pictures cannot be made ({error.strerror})", where=str(folder),
            remedy="name another data.concepts folder, one that can be written",
        ) from error  # fmt: skip


def _paint(painter, concept, folder, loaded, size, events, stop) -> None:  # type: ignore[no-untyped-def]
    """Paint one concept's missing pictures in batches; the number in the name is the key of the noise."""
    import time

    from trainers.engine.preview import PreviewSettings
    from trainers.engine.sheet import save_picture

    preview = loaded.preset.preview
    tag = of_bytes(concept.prompt.encode(), size=4)
    names = [f"class-{tag}-{number:05d}" for number in range(concept.generate)]
    open_names = [(number, name) for number, name in enumerate(names) if not (folder / f"{name}.png").exists()]
    started = time.monotonic()
    for start in range(0, len(open_names), _BATCH):
        if stop:
            raise Interrupted(stop.reason or "stop")
        batch = open_names[start : start + _BATCH]
        settings = PreviewSettings(
            (concept.prompt,) * len(batch), preview.negative, size, preview.steps, preview.guidance,
            loaded.preset.run.seed, first=batch[0][0],
        )  # fmt: skip
        for (_, name), picture in zip(batch, painter.paint(settings), strict=True):
            write_bytes(folder / f"{name}.txt", concept.prompt.encode())
            save_picture(picture, folder / f"{name}.png")
        done = start + len(batch)
        left = (time.monotonic() - started) / done * (len(open_names) - done)
        events.write(
            "status", state="preparing", message=f"class pictures {done}/{len(open_names)}, {format_seconds(left)} left"
        )
