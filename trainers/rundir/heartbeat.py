"""A thread that shows that the process lives while a long job has nothing to tell."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .events import EventLog

if TYPE_CHECKING:
    from typing_extensions import Self

EVERY_SECONDS = 10.0
SILENT_SECONDS = 60.0  # who says nothing for so long is taken for dead where its process can't be looked at


class Heartbeat:
    """Writes a heartbeat whenever the log was silent for `every` seconds, from entering to leaving the block."""

    def __init__(self, log: EventLog, every: float = EVERY_SECONDS) -> None:
        self._log, self._every = log, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(max(0.01, self._every - self._log.seconds_silent())):
            if self._log.seconds_silent() < self._every:
                continue
            try:
                self._log.write("heartbeat")
            except OSError:
                self._stop.wait(self._every)  # a full disk: the training loop meets it too, and has the words for it
