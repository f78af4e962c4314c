"""Requests to a running process, from the GUI or another terminal: one small file each, removed when answered.

  stop      finish the step, save, end (exit code 75)
  stop_now  end at once, without saving
  save      write a checkpoint at the end of this step
  preview   paint the previews at the end of this step

The running process asks often (in caching, sampling and saving too); a look into an empty folder costs microseconds.
"""

from __future__ import annotations

import os
import secrets
import time
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from trainers.core import atomic

from .layout import RunDir

RequestName = Literal["stop", "stop_now", "save", "preview"]


class Request(BaseModel):
    """One request; `id` is the name of its file, which sorts by time."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: RequestName
    time: float


def request(run: RunDir, name: RequestName) -> Request:
    """Ask the running process for something; returns at once."""
    now = time.time()
    wish = Request(id=f"{int(now * 1e9):020d}-{secrets.token_hex(3)}", name=name, time=now)
    atomic.write_bytes(run.control / f"{wish.id}.json", wish.model_dump_json().encode(), durable=False)
    return wish


def poll(run: RunDir) -> list[Request]:
    """List what is asked and not yet answered, the oldest first. Files that are no request are left alone."""
    try:
        with os.scandir(run.control) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".json"))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        try:
            found.append(Request.model_validate_json(atomic.patiently((run.control / name).read_bytes)))
        except (FileNotFoundError, ValidationError):  # answered in between, or of a later version
            continue
    return found


def answer(run: RunDir, wish: Request) -> None:
    """Mark a request as answered."""
    atomic.patiently(lambda: (run.control / f"{wish.id}.json").unlink(missing_ok=True))


def clear(run: RunDir) -> None:
    """Forget all requests; for a process that starts, which must not obey what was asked of a dead one."""
    for wish in poll(run):
        answer(run, wish)
