"""Where everything of a run lies. Other modules ask here; nobody joins these names himself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunDir:
    """The folder of one run. Making the object touches no disk; `create` makes the folders."""

    folder: Path

    @property
    def preset(self) -> Path:
        """The preset as the user wrote it, comments and all."""
        return self.folder / "preset.toml"

    @property
    def resolved(self) -> Path:
        """Every setting with its final value."""
        return self.folder / "resolved.json"

    @property
    def environment(self) -> Path:
        """Versions, devices and the command line."""
        return self.folder / "environment.json"

    @property
    def plan(self) -> Path:
        """The one plan: micro-batch, accumulation, steps, epochs, memory."""
        return self.folder / "plan.json"

    @property
    def data(self) -> Path:
        """What was found in the folders: captions and what is cut of them, shapes, duplicates, what is left out."""
        return self.folder / "data.json"

    @property
    def lock(self) -> Path:
        """Who runs here; see `lock`."""
        return self.folder / "lock"

    @property
    def events(self) -> Path:
        """What happened, one JSON object a line; see `events`."""
        return self.folder / "events.jsonl"

    @property
    def control(self) -> Path:
        """Requests to the running process; see `control`."""
        return self.folder / "control"

    @property
    def checkpoints(self) -> Path:
        """Folders step-00000500 and so on."""
        return self.folder / "checkpoints"

    @property
    def samples(self) -> Path:
        """Previews, one folder for each step."""
        return self.folder / "samples"

    @property
    def exports(self) -> Path:
        """The files that people came for."""
        return self.folder / "exports"

    @property
    def logs(self) -> Path:
        """Text logs, one for each rank, and TensorBoard's files."""
        return self.folder / "logs"

    def checkpoint(self, step: int) -> Path:
        """Return the folder of the checkpoint after `step` updates."""
        return self.checkpoints / step_name(step)

    def samples_of(self, step: int) -> Path:
        """Return the folder of the previews made after `step` updates."""
        return self.samples / step_name(step)

    def log(self, rank: int) -> Path:
        """Return the text log of one rank."""
        return self.logs / f"rank-{rank:03d}.log"

    def create(self) -> RunDir:
        """Make the folder and those in it; harmless where they exist."""
        for folder in (self.control, self.checkpoints, self.samples, self.exports, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        return self

    def started(self) -> bool:
        """Tell whether a run was ever begun here."""
        return self.events.exists() or self.resolved.exists()


def step_name(step: int) -> str:
    """Name a folder so that names sort as steps do."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Read the step from a folder's name; None for any other name."""
    digits = name.removeprefix("step-")
    return int(digits) if name.startswith("step-") and digits.isdecimal() else None
