"""`python tests/gpu/run.py [--out FILE] [--device cpu] [ARGS]`: every check on a card, as a table and as JSON.

Exit code 0 means that every check has passed. `--device cpu` is a trial run of the checks themselves without a card.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Results:
    """A plug-in for pytest that keeps outcome, seconds and what a test has recorded."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the test's own phase, and any other phase that failed."""
        if report.when != "call" and report.outcome != "failed":
            return
        problem = str(report.longrepr).strip().splitlines()[-1:] if report.outcome == "failed" else []
        self.rows.append(
            {
                "check": report.nodeid.rpartition("::")[2],
                "outcome": report.outcome,
                "seconds": round(report.duration, 2),
                **({"problem": problem[0]} if problem else {}),
                **dict(report.user_properties),
            }
        )


def line(row: dict[str, Any]) -> str:
    """One check as a line of the table."""
    details = ", ".join(
        f"{key} {shown(value)}" for key, value in row.items() if key not in ("check", "outcome", "seconds")
    )
    return f"{row['outcome']:<7} {row['seconds']:7.1f} s  {row['check']:<90} {details}"


def shown(value: object) -> str:
    """A recorded value, short."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str]) -> int:
    """Run the checks; return pytest's exit code."""
    parser = argparse.ArgumentParser(description="Check this project on a graphics card.")
    parser.add_argument("--out", type=Path, default=Path("gpu-checks.json"), help="where the JSON goes")
    parser.add_argument("--device", default="auto", help="auto, cuda, cuda:1, xpu, mps; cpu for a trial run")
    chosen, rest = parser.parse_known_args(arguments)
    out = chosen.out.resolve()
    os.environ["TRAINERS_TEST_DEVICE"] = chosen.device
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    results = Results()
    without = ["-k", "not card_memory"] if chosen.device == "cpu" else []
    code = int(pytest.main(["tests/gpu", "-q", "-p", "no:xdist", *without, *rest], plugins=[results]))
    for row in results.rows:
        print(line(row))
    document = {"ok": code == 0, "machine": platform.platform(), "device": chosen.device, "checks": results.rows}
    out.write_text(json.dumps(document, indent=2, default=str) + "\n", encoding="utf-8")
    print(f"{sum(row['outcome'] == 'passed' for row in results.rows)} of {len(results.rows)} passed; written to {out}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
