"""The measuring side of `gate`: a measured process that stands still until it is given leave for a lap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.core.errors import UserError
from trainers.engine.bench.spec import Case

if TYPE_CHECKING:
    from typing_extensions import Self

PACKAGES = Path(__file__).resolve().parents[3]
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class Child:
    """One measured process, of one thread; ended with the block it is used in."""

    def __init__(self, role: str, case: Case) -> None:
        self.role = role
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainers.engine.bench.child", role, case.to_json()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, encoding="utf-8",
            cwd=PACKAGES, env={**os.environ, **_ENVIRONMENT},
        )  # fmt: skip

    def told(self) -> dict[str, Any]:
        """Wait for its next message."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise UserError(f"the measured process ({self.role}) has failed", remedy=self._last_words())
        values: dict[str, Any] = json.loads(line)
        return values

    def lap(self) -> dict[str, float]:
        """Give leave for one lap and wait for its end: seconds a step (or picture), of the CPU and on the wall."""
        if self._process.stdin:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        return self.told()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return "\n".join(self._errors.read().strip().splitlines()[-8:])
