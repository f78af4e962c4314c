"""A run while it runs: the parts that the loop and its callbacks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from trainers.engine.signals import StopRequest

if TYPE_CHECKING:
    from torch import nn

    from trainers.core.batch import MicroBatch
    from trainers.core.family import Family, Weights
    from trainers.data.loader import Loader
    from trainers.engine.planning import Plan
    from trainers.engine.preview import Painter
    from trainers.engine.state import TrainState
    from trainers.engine.step import Report, Stepper
    from trainers.memory.device import Device
    from trainers.presets.load import Loaded
    from trainers.rundir.events import EventLog
    from trainers.rundir.layout import RunDir


class Callback(Protocol):
    """Something that happens beside training. An exception in a callback stops the run with its name."""

    def on_start(self, session: Session) -> None:
        """Before the first update of this process."""

    def on_step(self, session: Session, report: Report) -> None:
        """After every update."""

    def on_save(self, session: Session) -> None:
        """Just before a checkpoint is written: bring everything buffered to the disk."""

    def on_stop(self, session: Session, reason: str) -> None:
        """After the last update of this process; `reason` is "done", "stopped" or "failed"."""


class Quiet:
    """A callback that does nothing; others override what they need."""

    def on_start(self, session: Session) -> None:
        """Do nothing."""

    def on_step(self, session: Session, report: Report) -> None:
        """Do nothing."""

    def on_save(self, session: Session) -> None:
        """Do nothing."""

    def on_stop(self, session: Session, reason: str) -> None:
        """Do nothing."""


@dataclass
class Session:
    """Everything about one run in this process. Built by `engine.build`, driven by `engine.loop`."""

    loaded: Loaded
    plan: Plan
    run: RunDir
    events: EventLog
    device: Device
    family: Family
    weights: Weights
    denoiser: nn.Module
    vae: nn.Module | None
    text: nn.Module | None
    prompts: tuple[str, ...]
    loader: Loader
    held_out: Sequence[MicroBatch]
    stepper: Stepper
    state: TrainState
    painter: Painter | None
    stop: StopRequest
    callbacks: Sequence[Callback] = ()
    resumed_from: int = 0
    step_seconds: float = 0.0
    say: Callable[[str], None] = print
    notes: dict[str, Any] = field(default_factory=dict)

    def phase(self, name: str, detail: str = "") -> None:
        """Tell the world what the run is doing: training, sampling, saving, ..."""
        self.events.write(
            "status", state=name, message=detail, step=self.state.position.step, total_steps=self.plan.total_steps
        )
