"""Runs the measured processes in turn and puts their figures together. Free of torch: it only waits."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.engine.bench.child_process import PACKAGES, Child
from trainers.engine.bench.spec import FULL, SMALL, Case, Model, preset_text

_MIB = 1 << 20
Say = Callable[[str], None]
Lap = dict[str, float]


def _silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a time, rate or size of ours beside the plain loop's.

    Medians over rounds; `ratio` is ours / plain of the same round, between `least` and `most`; `wall` the same ratio in
    time on the wall. `aim` is what the suite wants to reach.
    """

    name: str
    unit: str
    plain: float | None
    ours: float
    ratio: float | None = None
    least: float | None = None
    most: float | None = None
    wall: float | None = None
    aim: str = ""


@dataclass(frozen=True)
class Bench:
    """How long to measure: `rounds` laps of `steps` steps after `warmup`, on the small `model`."""

    rounds: int = 5
    steps: int = 6
    warmup: int = 3
    model: Model = SMALL
    sizes: tuple[int, int] = (256, 64)
    pictures: int = 64
    full: bool = False

    def case(self, folder: Path, pixels: int, precision: str, **changes: Any) -> Case:
        """One case of this length."""
        whole = Case(
            folder, self.model, pixels, precision, pictures=self.pictures, warmup=self.warmup, steps=self.steps,
            rounds=self.rounds,
        )  # fmt: skip
        return dataclasses.replace(whole, **changes)


def bench_step(bench: Bench, precisions: Sequence[str] = ("fp32", "bf16"), say: Say = _silent) -> dict[str, Any]:
    """Measure everything. Returns {"machine", "date", "torch", "rounds", "steps", "rows": [...]}, JSON values only."""
    with tempfile.TemporaryDirectory(prefix="trainers-bench-") as name:
        rows = [dataclasses.asdict(row) for row in _rows(bench, precisions, Path(name), say)]
    return {
        "machine": machine(),
        "date": dt.date.today().isoformat(),
        "torch": importlib.metadata.version("torch"),
        "rounds": bench.rounds,
        "steps": bench.steps,
        "rows": rows,
    }


def _rows(bench: Bench, precisions: Sequence[str], folder: Path, say: Say) -> Iterator[Row]:
    large, small = bench.sizes
    title = f"{bench.model.name} U-Net"
    for precision in precisions:
        say(f"{large} px, {precision}")
        aim = {"fp32": "0.90", "bf16": "0.63"}[precision]
        yield from _steps(bench.case(folder, large, precision), f"step, {title}, {large} px, {precision}", aim)
    say(f"{small} px")
    yield from _fixed_cost(bench.case(folder, small, "fp32", steps=4 * bench.steps), f"{title}, {small} px, fp32")
    say("start")
    yield _first_step(bench.case(folder, large, "fp32", rounds=1, steps=1, warmup=1))
    yield _help_time()
    say("caching")
    yield _caching(bench.case(folder, large, "fp32", rounds=min(3, bench.rounds)))
    if bench.full:
        for precision in precisions:
            say(f"full SD 1.5, {precision}")
            case = bench.case(folder, 128, precision, model=FULL, pictures=8, steps=2, warmup=2, rounds=3)
            yield from _steps(case, f"step, SD 1.5 U-Net, 128 px, {precision}", "0.60")


def _steps(case: Case, name: str, aim: str) -> Iterator[Row]:
    laps, peaks = _race(case, ("plain", "ours"))
    yield _compare(name, "s", laps["plain"], laps["ours"], aim)
    plain, ours = peaks["plain"] / _MIB, peaks["ours"] / _MIB
    yield Row(f"peak memory of {name.removeprefix('step, ')}", "MiB", plain, ours, ours / plain, aim="1.05")


def _fixed_cost(case: Case, name: str) -> Iterator[Row]:
    """A step with almost no arithmetic shows what each step costs besides it."""
    laps, _ = _race(case, ("plain", "tuned", "ours"))
    yield _compare(f"step, {name}", "s", laps["plain"], laps["ours"], "")
    over = statistics.median(
        ours["cpu"] - tuned["cpu"] for ours, tuned in zip(laps["ours"], laps["tuned"], strict=True)
    )
    yield Row(f"fixed cost of a step, {name}: over a plain loop tuned alike", "ms", None, over * 1000, aim="5")


def _first_step(case: Case) -> Row:
    """CPU seconds from the start of the process to the end of its first step; ours caches every picture first."""
    _prepare(case)
    found = {}
    for role in ("plain", "cold"):
        with Child(role, case) as child:
            found[role] = child.told()["first_cpu"]
            child.lap()
            child.told()  # its end
    name = f"start to first step (ours caches {case.pictures} pictures, the plain loop none)"
    return Row(name, "s", found["plain"], found["cold"], found["cold"] / found["plain"], aim="5")


def _help_time() -> Row:
    """CPU seconds of `trainers --help`; beside it a bare interpreter."""
    ours = _cpu_of([sys.executable, "-m", "trainers", "--help"])
    bare = _cpu_of([sys.executable, "-c", "pass"])
    return Row("trainers --help (plain: an interpreter that does nothing)", "s", bare, ours, aim="0.2")


def _caching(case: Case) -> Row:
    laps, _ = _race(case, ("plain encode", "our encode"))
    compared = _compare("latent caching", "pictures/s", laps["plain encode"], laps["our encode"], "above plain")
    return dataclasses.replace(
        compared, plain=1 / (compared.plain or 1.0), ours=1 / compared.ours,
        name=f"latent caching, {case.pixels} px (ratio: CPU seconds a picture)",
    )  # fmt: skip


def _race(case: Case, roles: Sequence[str]) -> tuple[dict[str, list[Lap]], dict[str, float]]:
    """Laps of each role, one after the other; each round in the opposite order of the one before."""
    _prepare(case)
    laps: dict[str, list[Lap]] = {role: [] for role in roles}
    peaks: dict[str, float] = {}
    with ExitStack() as stack:
        children = []
        for role in roles:  # one after the other, so that no start disturbs a lap
            child = stack.enter_context(Child(role, case))
            if "encode" not in role:
                child.told()
            children.append(child)
        for number in range(case.rounds):
            for child in children if number % 2 == 0 else reversed(children):
                laps[child.role].append(child.lap())
        for child in children:
            peaks[child.role] = child.told()["peak"]
    return laps, peaks


def _prepare(case: Case) -> None:
    """Write the preset; make model, pictures and cache once."""
    case.home.mkdir(parents=True, exist_ok=True)
    case.preset.write_text(preset_text(case), encoding="utf-8")
    if case.tensors.exists():
        return
    with Child("prepare", case) as child:
        child.told()


def _compare(name: str, unit: str, plain: Sequence[Lap], ours: Sequence[Lap], aim: str) -> Row:
    ratios = [mine["cpu"] / theirs["cpu"] for theirs, mine in zip(plain, ours, strict=True)]
    walls = [mine["wall"] / theirs["wall"] for theirs, mine in zip(plain, ours, strict=True)]
    return Row(
        name, unit, statistics.median(lap["cpu"] for lap in plain), statistics.median(lap["cpu"] for lap in ours),
        statistics.median(ratios), min(ratios), max(ratios), statistics.median(walls), aim,
    )  # fmt: skip


def _cpu_of(command: Sequence[str]) -> float:
    """CPU seconds of a command, the least of three tries."""

    import resource  # not on Windows

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=PACKAGES)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(3))


def machine() -> str:
    """The machine in a few words: processor, cores, system."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
        name = {key.strip(): value.strip() for key, value in lines.items()}.get("model name", name)
    except OSError:
        pass  # not Linux: the platform's own word for it
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
