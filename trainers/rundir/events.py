"""What a run tells the world: events.jsonl, append-only, one JSON object a line, written by one process.

Reader and writer use the same models. A reader skips what it does not understand: types of a later version, and a line
cut by a kill. A writer that finds such a half line begins a new one, so nothing that was written is ever changed.
Floats are written so that they read back bit for bit; nan and infinities become strings: JSON has no word for them.

After a kill, a resumed run repeats the steps since its checkpoint, and their events: `by_step` keeps the latest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

if TYPE_CHECKING:
    from typing_extensions import Self

VERSION = 1
_TAIL_BYTES = 1 << 16

LiveState = Literal["waiting", "preparing", "training", "sampling", "saving", "exporting", "stopping"]
FinalState = Literal["stopped", "failed", "done"]


class BaseEvent(BaseModel):
    """What every event has: format version, seconds since 1970, updates and samples done."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings", extra="ignore")

    v: int = VERSION
    time: float
    step: int = 0
    samples: int = 0


class StatusEvent(BaseEvent):
    """The run entered a new state. `total_steps` where it is known."""

    type: Literal["status"] = "status"
    state: LiveState | FinalState
    message: str = ""
    total_steps: int | None = None


class PlanEvent(BaseEvent):
    """The plan in use from here on, as in plan.json."""

    type: Literal["plan"] = "plan"
    plan: dict[str, Any]


class MetricEvent(BaseEvent):
    """One update: mean loss over its samples, learning rate of the first group, and any further number by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]

    type: Literal["metric"] = "metric"
    loss: float
    lr: float
    grad_norm: float | None = None
    samples_per_second: float | None = None
    seconds_left: float | None = None


class ValidationEvent(BaseEvent):
    """Loss on held-out items at fixed noise and times; `by_time` maps the quantile of t to its loss."""

    type: Literal["validation"] = "validation"
    loss: float
    by_time: dict[str, float] = {}


class PreviewEvent(BaseEvent):
    """Pictures were painted; `files` relative to the run's folder, in the order of `prompts`."""

    type: Literal["preview"] = "preview"
    files: list[str]
    prompts: list[str] = []
    seeds: list[int] = []


class CheckpointEvent(BaseEvent):
    """A checkpoint or export is complete on the disk; `path` relative to the run's folder."""

    type: Literal["checkpoint"] = "checkpoint"
    path: str
    bytes: int | None = None


class ExportEvent(BaseEvent):
    """A finished file was written, reloaded and compared; `difference` is the largest relative one that was found."""

    type: Literal["export"] = "export"
    path: str
    layout: str
    tensors: int
    difference: float
    bytes: int


class ProofEvent(BaseEvent):
    """Whether every trainable weight has had a finite non-zero gradient and has moved in the first updates."""

    type: Literal["proof"] = "proof"
    holds: bool
    message: str


class RequestEvent(BaseEvent):
    """A request from `control` was heard, done or refused."""

    type: Literal["request"] = "request"
    id: str
    name: str
    answer: Literal["heard", "done", "refused"]
    message: str = ""


class WarningEvent(BaseEvent):
    """Something a person should know; the run goes on."""

    type: Literal["warning"] = "warning"
    message: str
    where: str = ""
    remedy: str = ""


class ErrorEvent(BaseEvent):
    """Why the run ended; `details` is the traceback where it was a bug."""

    type: Literal["error"] = "error"
    message: str
    where: str = ""
    remedy: str = ""
    details: str = ""


class HeartbeatEvent(BaseEvent):
    """The process lives, although it has nothing else to tell."""

    type: Literal["heartbeat"] = "heartbeat"


Event = (
    StatusEvent | PlanEvent | MetricEvent | ValidationEvent | PreviewEvent | CheckpointEvent | ExportEvent | ProofEvent
    | RequestEvent | WarningEvent | ErrorEvent | HeartbeatEvent
)  # fmt: skip
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
_MODELS: dict[str, type[BaseEvent]] = {
    model.model_fields["type"].default: model for model in BaseEvent.__subclasses__() if "type" in model.model_fields
}
AnyEvent = TypeVar("AnyEvent", bound=BaseEvent)


def parse(line: bytes) -> Event | None:
    """Read one line; None for a half line, a foreign type or anything else that is no event of ours."""
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError:
        return None


def read(path: Path) -> list[Event]:
    """Read all events of a file; none where there is no file."""
    return Tail(path).new()


def last(path: Path, type: str = "") -> Event | None:
    """Return the last event, of one `type` where that is given, reading from the end of the file."""
    mark = f'"type":"{type}"'.encode() if type else b""  # spares parsing all the others
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return None
    reach = _TAIL_BYTES
    with open(path, "rb") as file:
        while True:
            start = max(0, size - reach)
            file.seek(start)
            data = file.read(size - start)
            if start:  # what comes first is the rest of a line
                data = data[data.find(b"\n") + 1 :]
            for line in _lines_from_the_end(data, mark):
                event = parse(line)
                if event is not None and type in ("", event.type):
                    return event
            if start == 0:
                return None
            reach *= 4


def _lines_from_the_end(data: bytes, mark: bytes) -> Iterator[bytes]:
    """Yield the lines that hold `mark`, the last one first, at the speed of a byte search."""
    end = len(data)
    while end > 0 and (at := data.rfind(mark, 0, end)) >= 0:
        start, stop = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        yield data[start : stop if stop >= 0 else len(data)]
        end = start - 1


def by_step(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Keep the latest event of each step, in order of steps: the curve of a run that was killed and resumed."""
    latest = {event.step: event for event in events}
    return [latest[step] for step in sorted(latest)]


class Tail:
    """Reads what was added to a file since the last look; never a line that is not finished yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def new(self) -> list[Event]:
        """Return the events added since the last call. A file that shrank was replaced, and is read from its start."""
        try:
            with open(self.path, "rb") as file:
                if file.seek(0, 2) < self.offset:
                    self.offset = 0
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data.rfind(b"\n") + 1
        self.offset += complete
        parsed = (parse(line) for line in data[:complete].splitlines())
        return [event for event in parsed if event is not None]


def follow(path: Path, *, until: Callable[[], bool], poll_seconds: float = 0.5) -> Iterator[Event]:
    """Yield events as they come, the old ones first, until `until()` is true and nothing more is there."""
    tail = Tail(path)
    while True:
        ending = until()  # asked before the read, so that what was written last is not lost
        yield from tail.new()
        if ending:
            return
        time.sleep(poll_seconds)


class EventLog:
    """The writer. Safe for several threads of one process; that there is one process is the lock's business."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        previous = last(path)
        self.path = path
        self._step, self._samples = (previous.step, previous.samples) if previous else (0, 0)
        self._mutex = threading.Lock()
        self._written = time.monotonic()
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by `close`
        if _ends_in_half_line(path):
            self._file.write(b"\n")

    def write(self, type: str, **fields: Any) -> BaseEvent:
        """Append one event. `step` and `samples`, where not given, are those of the event before."""
        model = _MODELS[type]
        unknown = set(fields) - set(model.model_fields)
        if unknown and model.model_config["extra"] != "allow":
            raise TypeError(f'a "{type}" event has no field {", ".join(sorted(unknown))}')
        fields = {name: _spelled(value) for name, value in fields.items()}
        with self._mutex:
            self._step, self._samples = fields.get("step", self._step), fields.get("samples", self._samples)
            event = model(**{"time": time.time(), **fields, "step": self._step, "samples": self._samples})
            self._append(event.model_dump_json(exclude_none=True).encode() + b"\n")
        return event

    def seconds_silent(self) -> float:
        """Tell how long ago something was written."""
        return time.monotonic() - self._written

    def close(self) -> None:
        """Close the file; writing afterwards is an error."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _append(self, data: bytes) -> None:
        while data:  # a raw file may take less than it is given
            data = data[self._file.write(data) or 0 :]
        self._written = time.monotonic()


def _spelled(value: Any) -> Any:
    """Spell out what is no letter in any encoding of JSON, as in file names of an old disk: "caf\\udce9.png"."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _spelled(inner) for name, inner in value.items()}
    return [_spelled(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _ends_in_half_line(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"
