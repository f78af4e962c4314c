"""Starts runs on demand, each in a forked process, so that the libraries are imported once for all of them.

Reads one JSON object a line: {"arguments": of `trainers`, "slow": {"module:Class.name": seconds before each call}}.
Answers with the process id, and with the exit code (negative: the signal) when the process has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any


def slow_down(place: str, seconds: float) -> None:
    """Let every call of a function begin with a pause."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for step in owners:
        owner = getattr(owner, step)
    real = getattr(owner, name)

    def slowed(*arguments: Any, **named: Any) -> Any:
        time.sleep(seconds)
        return real(*arguments, **named)

    setattr(owner, name, slowed)


def run(arguments: Sequence[str], slow: Mapping[str, float], log: str) -> int:
    """Be `trainers ARGUMENTS`."""
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for place, seconds in slow.items():
        slow_down(place, seconds)
    from trainers.cli.app import main

    return main(list(arguments))


def serve() -> None:
    """Import, then answer requests until the input ends."""
    for name in ("assemble", "run", "results", "exporting"):
        importlib.import_module(f"trainers.engine.{name}")
    importlib.import_module("models.sd15.family")
    importlib.import_module("diffusers").StableDiffusionPipeline  # noqa: B018 - imports it
    for line in sys.stdin:
        wish = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(run(wish["arguments"], wish["slow"], wish["log"]))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
