"""How a measured process and the one that measures speak: a line of JSON each way, so that processes work in turn.

The measured one tells what it has found on its standard output, and waits for a line before each lap. While it waits it
uses no processor, and the other loop runs its lap.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


class Gate:
    """The measured side."""

    def __init__(self) -> None:
        """Keep standard output for measurements; what libraries print goes to standard error."""
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._began = (0.0, 0.0)

    def tell(self, **values: Any) -> None:
        """Send one measurement."""
        self._out.write(json.dumps(values) + "\n")
        self._out.flush()

    def first_step(self) -> None:
        """Tell what the process has used up to the end of its first step. Its CPU clock began with the process."""
        self.tell(first_cpu=time.process_time(), first_at=time.time())

    def wait(self) -> None:
        """Wait for leave to run a lap, and start its clocks."""
        sys.stdin.readline()
        self._began = (time.process_time(), time.perf_counter())

    def lap(self, count: int) -> None:
        """Tell what one of the `count` steps (or pictures) of a lap took."""
        cpu, wall = time.process_time() - self._began[0], time.perf_counter() - self._began[1]
        self.tell(cpu=cpu / count, wall=wall / count)

    def end(self) -> None:
        """Tell the most memory the process has had."""
        self.tell(peak=_peak_bytes())


def _peak_bytes() -> int:
    """The most memory this process has had resident."""
    import resource  # not on Windows, where nothing else of the suite may miss it

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
