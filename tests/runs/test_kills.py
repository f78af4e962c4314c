"""Real processes that are killed, interrupted and asked to stop, at every kind of moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from PIL import Image
from safetensors.torch import load_file

from tests.conftest import ROOT
from tests.tiny import Finished, Workbench, same
from trainers.core.errors import EXIT_DONE, EXIT_RESUMABLE
from trainers.rundir import control
from trainers.rundir.events import StatusEvent, Tail, parse
from trainers.rundir.layout import RunDir
from trainers.rundir.status import read_status

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks and sends signals")

KILLS = 20
PATIENCE = 400.0
SLOW = {
    "models.sd15.family:Family.encode_pixels": 0.05,
    "models.sd15.family:Family.encode_text": 0.03,
    "trainers.engine.step:Stepper.loss": 0.02,
    "trainers.engine.preview:Painter.paint": 0.05,
    "trainers.engine.sheet:save_picture": 0.03,
    "trainers.engine.preview:save_picture": 0.03,
    "trainers.engine.state:write_state": 0.03,
    "trainers.checkpoint.store:_seal": 0.03,
    "trainers.checkpoint.store:_publish": 0.03,
    "trainers.checkpoint.store:_rotate": 0.03,
    "trainers.checkpoint.export:save_file": 0.05,
    "trainers.checkpoint.export:verify_lora": 0.05,
}
SETTINGS: dict[str, Any] = {
    "run": {"length": "8 steps"},
    "data": {"batch": 2, "caption_dropout": 0.3},
    "compute": {"micro_batch": 1},
    "train": {"dropout": 0.1},
    "ema": {"enabled": True},
    "preview": {"prompts": ["a red circle", "a dog"], "every": "3 steps", "steps": 1, "size": [64, 64]},
    "checkpoint": {"every": "2 steps"},
    "export": {"layouts": ["kohya", "diffusers"]},
}
Moment = Callable[[StatusEvent], bool]


def preparing(what: str) -> Moment:
    return lambda event: event.state == "preparing" and event.message.startswith(what)


def state(name: str) -> Moment:
    return lambda event: event.state == name


class Driver:
    """The process that forks runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, preset: Path, out: Path, cache: Path, slow: dict[str, float] | None = None) -> int:
        """Start or resume a run; returns its process id."""
        out.parent.mkdir(parents=True, exist_ok=True)
        arguments = ["run", str(preset), "--out", str(out), "--cache", str(cache)]
        wish = {"arguments": arguments, "slow": SLOW if slow is None else slow, "log": str(out.parent / "log.txt")}
        self._say(json.dumps(wish))
        return int(self._answer())

    def wait(self) -> int:
        """The exit code of the run that was started last, when it has ended."""
        return int(self._answer())

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    command = [sys.executable, str(Path(__file__).with_name("driver.py"))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Driver(process)
        process.kill()


def wait_for(tail: Tail, moment: Moment, pid: int, count: int = 1) -> bool:
    """Wait until the run has told `moment` `count` times; False when it ended before."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for event in tail.new():
            count -= isinstance(event, StatusEvent) and moment(event)
            if count <= 0:
                return True
        if not Path(f"/proc/{pid}").exists() and not _alive(pid):
            return False
        time.sleep(0.003)
    raise TimeoutError("the run tells nothing")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def assert_all_readable(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
        elif path.suffix == ".json":
            json.loads(path.read_text("utf-8"))
        elif path.suffix == ".toml":
            tomlkit.parse(path.read_text("utf-8"))


@pytest.mark.slow
def test_twenty_kills_change_nothing(bench: Workbench, driver: Driver) -> None:
    preset = bench.preset(SETTINGS)
    straight = Finished(bench.folder / "straight" / "a", EXIT_DONE)
    driver.start(preset, straight.folder, bench.folder / "straight" / "cache", {})
    assert driver.wait() == EXIT_DONE

    draw = random.Random(7)
    later = [(state("training"), 5), (state("sampling"), 3), (state("saving"), 5)]
    moments = [moment for moment, count in later for _ in range(count)]
    draw.shuffle(moments)
    moments = [preparing("latents")] * 3 + [preparing("captions")] * 2 + moments + [state("exporting")] * 2
    assert len(moments) == KILLS
    folder, cache = bench.folder / "killed" / "a", bench.folder / "killed" / "cache"
    run, hit = Finished(folder, EXIT_DONE), Counter[str]()
    for moment in moments:
        size = RunDir(folder).events.stat().st_size if RunDir(folder).events.exists() else 0
        tail = Tail(RunDir(folder).events)
        tail.offset = size
        pid = driver.start(preset, folder, cache)
        assert wait_for(tail, moment, pid, draw.choice([1, 1, 2]) if moment in later[0] + later[2] else 1)
        time.sleep(draw.uniform(0.0, 0.12))
        kill(pid, signal.SIGKILL)
        code = driver.wait()
        told = [event for event in run.events if isinstance(event, StatusEvent)]
        if code == -signal.SIGKILL:
            hit[told[-1].state] += 1
            assert read_status(RunDir(folder)).state == "interrupted"
    driver.start(preset, folder, cache, {})
    assert driver.wait() == EXIT_DONE, (folder.parent / "log.txt").read_text()[-2000:]

    assert sum(hit.values()) >= KILLS - 2, hit
    assert set(hit) == {"preparing", "training", "sampling", "saving", "exporting"}
    assert run.losses == straight.losses
    assert [event.step for event in run.metrics] == list(range(1, 9))
    assert same(run.weights(8), straight.weights(8))
    assert same(run.saved(8, "averages"), straight.saved(8, "averages"))
    assert not [warning for warning in run.warnings if "not exact" in warning]
    for layout in ("a.safetensors", "a-diffusers.safetensors"):
        assert same(load_file(folder / "exports" / layout), load_file(straight.folder / "exports" / layout))
    shown = [path.relative_to(straight.folder) for path in sorted(straight.folder.rglob("samples/*/*.png"))]
    assert len(shown) == 2 * 4
    for picture in shown:
        assert Image.open(folder / picture).tobytes() == Image.open(straight.folder / picture).tobytes(), picture
    assert_all_readable(folder)
    assert not [path for path in folder.rglob(".*") if path.suffix == ".tmp" or path.name.startswith(".staging")]
    broken = [line for line in RunDir(folder).events.read_bytes().splitlines() if line and parse(line) is None]
    assert len(broken) <= KILLS  # a line that a kill cut off, never more


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_the_first_signal_finishes_the_step_and_saves(bench: Workbench, driver: Driver, number: int) -> None:
    preset = bench.preset({"run": {"length": "40 steps"}, "compute": {"micro_batch": 1}})
    folder = bench.folder / "runs" / "a"
    tail = Tail(RunDir(folder).events)
    pid = driver.start(preset, folder, bench.cache, {"trainers.engine.step:Stepper.loss": 0.05})
    assert wait_for(tail, state("training"), pid)
    time.sleep(0.3)
    kill(pid, number)
    assert driver.wait() == EXIT_RESUMABLE
    run = Finished(folder, EXIT_RESUMABLE)
    assert run.events[-1].state == "stopped"
    done = run.metrics[-1].step
    assert 0 < done < 40
    assert run.checkpoints == [f"step-{done:08d}"]
    assert run.saved(done, "progress")["step"] == done


def test_the_second_signal_ends_at_once(bench: Workbench, driver: Driver) -> None:
    preset = bench.preset({})
    folder = bench.folder / "runs" / "a"
    tail = Tail(RunDir(folder).events)
    pid = driver.start(preset, folder, bench.cache, {"trainers.engine.step:Stepper.loss": 60.0})
    assert wait_for(tail, state("training"), pid)
    time.sleep(0.2)
    kill(pid, signal.SIGINT)
    time.sleep(0.2)
    began = time.monotonic()
    kill(pid, signal.SIGINT)
    assert driver.wait() == EXIT_RESUMABLE
    assert time.monotonic() - began < 5
    assert Finished(folder, 0).checkpoints == []
    assert read_status(RunDir(folder)).state == "interrupted"


@pytest.mark.parametrize("what", ["latents", "captions"])
def test_a_stop_is_obeyed_while_caching_and_what_was_made_is_kept(bench: Workbench, driver: Driver, what: str) -> None:
    cache = bench.folder / "cache"
    preset, folder = bench.preset({"run": {"length": "1 steps"}}), bench.folder / "runs" / "a"
    tail = Tail(RunDir(folder).events)
    slow = {"models.sd15.family:Family.encode_pixels": 0.4, "models.sd15.family:Family.encode_text": 0.4}
    pid = driver.start(preset, folder, cache, slow)
    assert wait_for(tail, preparing(what), pid)
    time.sleep(0.5)
    control.request(RunDir(folder), "stop")
    began = time.monotonic()
    assert driver.wait() == EXIT_RESUMABLE
    assert time.monotonic() - began < 10
    kept = len(list(cache.rglob("*.safetensors")))
    assert kept >= 1
    assert read_status(RunDir(folder)).state == "stopped"
    driver.start(preset, folder, cache, {})
    assert driver.wait() == EXIT_DONE
    assert len(list(cache.rglob("*.safetensors"))) == 12  # five latents, five captions, the null one, the negative
