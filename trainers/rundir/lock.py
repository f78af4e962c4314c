"""One run, one process: the file `lock` names it by host, process id and start of the process.

A process id alone proves nothing, since the system gives it to another process some day; with the start it is unique.
So a lock left by a kill is recognised and taken over, and a second start next to a living process is refused.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trainers.core import atomic
from trainers.core.errors import UserError

from . import events
from .heartbeat import SILENT_SECONDS
from .layout import RunDir


class Owner(BaseModel):
    """Who holds a lock. `process_start` is compared only for equality; `time` is when the lock was taken."""

    model_config = ConfigDict(frozen=True)

    host: str
    pid: int
    process_start: str
    time: float
    token: str

    def alive(self) -> bool | None:
        """Tell whether the process runs; None where it is on another host and can't be looked at."""
        if self.host != socket.gethostname():
            return None
        return process_start(self.pid) == self.process_start


def process_start(pid: int) -> str | None:
    """Return what tells this process from any other that ever had its id; None when there is no such process."""
    if os.path.exists("/proc/self/stat"):
        return _start_on_linux(pid)
    import psutil

    try:
        process = psutil.Process(pid)
        with suppress(psutil.AccessDenied):  # another user's: it is there, which is enough
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
    except psutil.NoSuchProcess:
        return None
    return str(hash(process))  # of id and start; `create_time` follows a clock that is set anew on macOS


def _start_on_linux(pid: int) -> str | None:
    """Return the id of the boot and ticks since then: a clock that is set anew can't change them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None
    boot = ""
    with suppress(OSError):  # some containers hide it
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def read_owner(run: RunDir) -> Owner | None:
    """Return who holds the lock of a run, dead or alive; None when nobody does."""
    try:
        return Owner.model_validate_json(atomic.patiently(run.lock.read_bytes))
    except (FileNotFoundError, ValidationError):
        return None


def is_running(run: RunDir) -> bool:
    """Tell whether a run is in the hands of a living process; on another host, whether it gave a sign of late."""
    owner = read_owner(run)
    if owner is None:
        return False
    alive = owner.alive()
    if alive is not None:
        return alive
    event = events.last(run.events)
    latest = max(owner.time, event.time if event else 0.0)
    return time.time() - latest < SILENT_SECONDS


@contextmanager
def hold(run: RunDir) -> Iterator[Owner]:
    """Hold the lock of a run for a block; UserError where a living process has it, a dead one's is taken over."""
    owner = acquire(run)
    try:
        yield owner
    finally:
        release(run, owner)


def acquire(run: RunDir) -> Owner:
    """Take the lock for this process; see `hold`."""
    pid = os.getpid()
    start = process_start(pid)
    mine = Owner(
        host=socket.gethostname(), pid=pid, process_start=start or "", time=time.time(), token=secrets.token_hex(8)
    )
    run.folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(run.folder / ".lock.guard"):
        if is_running(run):
            raise UserError(_refusal(run), where=str(run.folder), remedy=_remedy(run))
        atomic.write_bytes(run.lock, (mine.model_dump_json() + "\n").encode())
    return mine


def release(run: RunDir, owner: Owner) -> None:
    """Give the lock back, unless it is another's by now."""
    current = read_owner(run)
    if current is not None and current.token == owner.token:
        atomic.patiently(lambda: run.lock.unlink(missing_ok=True))


def _refusal(run: RunDir) -> str:
    owner = read_owner(run)
    return (
        f"this run is already going, as process {owner.pid} on {owner.host}" if owner else "this run is already going"
    )


def _remedy(run: RunDir) -> str:
    owner = read_owner(run)
    if owner is not None and owner.alive() is None:
        return f"stop it there; if it is surely dead, wait {SILENT_SECONDS:.0f} s after its last event and start again"
    return "stop it first, or choose another folder"


@contextmanager
def _one_at_a_time(guard: Path) -> Iterator[None]:
    """Keep two starts in the same moment apart. The system frees the guard of a process that dies."""
    with open(guard, "ab") as file:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            with suppress(OSError):  # some network file systems have no such locks; the race is then merely unlikely
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
