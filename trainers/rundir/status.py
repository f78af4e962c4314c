"""What a run is doing, from lock, requests and events. Nothing here trusts the word of a process that is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from . import control, events, lock
from .events import FinalState, LiveState, StatusEvent
from .layout import RunDir

State = LiveState | FinalState | Literal["interrupted"]


@dataclass(frozen=True)
class RunStatus:
    """The state of a run, how far it is, and what it said last. `total_steps` is None until it is planned."""

    state: State
    step: int = 0
    samples: int = 0
    total_steps: int | None = None
    message: str = ""
    last_sign: float | None = None
    pid: int | None = None
    host: str | None = None

    @property
    def running(self) -> bool:
        """Whether a living process works on it."""
        return self.state in get_args(LiveState) and self.state != "waiting"

    @property
    def resumable(self) -> bool:
        """Whether starting it again would go on with it."""
        return self.state in ("stopped", "failed", "interrupted")


def read_status(run: RunDir) -> RunStatus:
    """Look at a run; cheap enough to be asked every second."""
    owner, alive = lock.read_owner(run), lock.is_running(run)
    latest = events.last(run.events)
    told = events.last(run.events, "status")
    status = told if isinstance(told, StatusEvent) else None
    return RunStatus(
        state=_state(run, status, owner, alive),
        step=latest.step if latest else 0,
        samples=latest.samples if latest else 0,
        total_steps=status.total_steps if status else None,
        message=status.message if status else "",
        last_sign=latest.time if latest else None,
        pid=owner.pid if owner and alive else None,
        host=owner.host if owner and alive else None,
    )


def _state(run: RunDir, told: StatusEvent | None, owner: lock.Owner | None, alive: bool) -> State:
    """Weigh what the run said against whether somebody is there."""
    if alive and owner is not None:
        if told is None or told.time < owner.time:  # a new process that has not spoken yet
            return "preparing"
        if told.state in get_args(FinalState):
            return told.state
        asked = {wish.name for wish in control.poll(run)}
        return "stopping" if asked & {"stop", "stop_now"} else told.state
    if told is None:
        return "interrupted" if owner is not None else "waiting"
    if told.state in get_args(FinalState) and (owner is None or told.time >= owner.time):
        return told.state
    return "waiting" if told.state == "waiting" and owner is None else "interrupted"
