"""The live line of a run: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

_PLAIN_SECONDS = 10.0


class Progress:
    """Shows step, loss, rate, samples per second and the time left."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._last = 0.0
        self._total = 0

    def start(self, step: int, total: int) -> None:
        """Begin at `step` of `total`."""
        self._total = total
        if self._quiet or not sys.stdout.isatty():
            return
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("step {task.completed:.0f}/{task.total:.0f}"), progress.BarColumn(bar_width=28),
            progress.TaskProgressColumn(), progress.TextColumn("{task.fields[text]}"), refresh_per_second=4,
        )  # fmt: skip
        self._task = self._bar.add_task("train", total=total, completed=step, text="")
        self._bar.start()

    def show(self, step: int, loss: float, smooth: float, rate: float, speed: float, remaining: str) -> None:
        """Show the newest numbers."""
        text = f"loss {loss:.4f} (smooth {smooth:.4f})  lr {rate:.2e}  {speed:.1f} samples/s  {remaining} left"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, text=text)
        elif not self._quiet and (time.monotonic() - self._last >= _PLAIN_SECONDS or step == self._total):
            self._last = time.monotonic()
            _line(f"step {step}/{self._total}  {text}")

    def say(self, text: str) -> None:
        """Print a line without disturbing the bar."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            _line(text)

    def stop(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
