"""Ctrl-C and SIGTERM: the first asks the run to finish its step and save, the second ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from trainers.core.errors import EXIT_RESUMABLE
from trainers.rundir import control
from trainers.rundir.layout import RunDir

_NAMES = ("SIGINT", "SIGTERM", "SIGBREAK")


class StopRequest:
    """Whether and why the run shall stop; set by a signal or by a control request."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    def ask(self, reason: str) -> None:
        """Ask for a stop; the first reason is kept."""
        self.reason = self.reason or reason


def stop_requested(stop: StopRequest, run: RunDir) -> bool:
    """Whether to stop, by a signal or by a request in the run's folder. For phases in which no update is made."""
    for request in control.poll(run):
        if request.name in ("stop", "stop_now"):
            stop.ask(request.name)
            control.answer(run, request)
    return bool(stop)


@contextmanager
def listening(stop: StopRequest) -> Iterator[StopRequest]:
    """Turn signals into stop requests for a while; the handlers from before come back afterwards."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop:
            _tell("second signal: ending at once; the last checkpoint is whole")
            os._exit(EXIT_RESUMABLE)
        stop.ask(signal.Signals(number).name)
        _tell("stopping: finishing this step and saving (again to end at once)")

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    try:
        before = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not the main thread: whoever embeds the engine handles signals
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _tell(sentence: str) -> None:
    """Print past Python's own buffers: the signal may have come in the middle of a print, or the terminal be gone."""
    with suppress(OSError):
        os.write(2, f"\n{sentence}\n".encode())
