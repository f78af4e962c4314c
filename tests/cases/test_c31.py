"""C31: killed while saving, at every act on a file and at random moments: the last whole checkpoint is taken."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainers.checkpoint import store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses SIGKILL")

# Saves step 3 over complete steps 1 and 2, and kills itself at its n-th act on a file (before it happens).
KILLED_AT_AN_ACT = """
import os, signal, sys
from pathlib import Path
from trainers.checkpoint import store

run, deadly, step = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
acts = 0

def hook(event, arguments):
    global acts
    if event in EVENTS and "checkpoints" in str(arguments):
        acts += 1
        if acts == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

def write(folder):
    for name in ("weights", "optimizer", "progress"):
        with open(folder / name, "wb", buffering=0) as file:
            file.write(b"x" * 5000)
            open(folder / name, "rb").close()  # an act while the file is half written
            file.write(b"y" * 5000)

sys.addaudithook(hook)
store.save(run, step, write, {"step": step}, keep=2)
"""

# Saves for ever, until somebody kills it.
KILLED_FROM_OUTSIDE = """
import sys
from pathlib import Path
from trainers.checkpoint import store

run, first = Path(sys.argv[1]), int(sys.argv[2])

def write(folder):
    for number in range(4):
        (folder / f"part{number}").write_bytes(bytes([step % 251]) * 300_000)

for step in range(first, first + 100_000):
    store.save(run, step, write, {"step": step}, keep=2)
    print(step, flush=True)
"""

ROOT = Path(__file__).parents[2]


def write_small(folder: Path) -> None:
    (folder / "weights").write_bytes(b"w" * 1000)


def begin(run: Path) -> None:
    for step in (1, 2):
        store.save(run, step, write_small, {"step": step})


@pytest.mark.parametrize("step", [3, 2], ids=["a new step", "the same step again"])
def test_c31_killed_at_every_act_of_a_save(tmp_path: Path, step: int) -> None:
    outcomes = set()
    for deadly in range(1, 200):
        run = tmp_path / str(deadly)
        begin(run)
        command = [sys.executable, "-c", KILLED_AT_AN_ACT, str(run), str(deadly), str(step)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        found, skipped = store.newest(run)
        assert found is not None
        assert store.check(found) is None
        assert store.read_meta(found)["step"] in (2, step)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        left = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".staging-")]
        assert sorted(Path(problem.where).name for problem in skipped) == sorted(left), "a cut-off save is not named"
        outcomes.add((store.read_meta(found)["step"], bool(skipped)))
        store.clean_staging(run)
        again, skipped = store.newest(run)
        assert again is not None
        assert (store.step_of(again), skipped) == (store.step_of(found), [])
        store.save(run, step, write_small, {"step": step})
        assert all(path.name.startswith("step-") for path in (run / "checkpoints").iterdir())
    else:
        pytest.fail("the save never came to its end")
    assert deadly > 20, "the save was hardly disturbed"
    assert (2, True) in outcomes, "no kill cut the save off"
    assert any(taken == step for taken, _ in outcomes), "no kill came after the new checkpoint had its name"


def test_c31_killed_at_random_moments(tmp_path: Path) -> None:
    begin(tmp_path)
    chance = random.Random(31)
    last = 2
    for _ in range(8):
        command = [sys.executable, "-c", KILLED_FROM_OUTSIDE, str(tmp_path), str(last + 1)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline()  # it has begun to save
        time.sleep(chance.uniform(0.0, 0.08))
        process.kill()
        told = [int(line) for line in (first + process.stdout.read()).split()]
        process.stdout.close()
        process.wait()
        found, _ = store.newest(tmp_path)
        assert found is not None
        step = store.read_meta(found)["step"]
        assert step >= told[-1], "a checkpoint that was reported as saved is lost"
        assert store.step_of(found) == step
        assert (found / "part0").read_bytes() == bytes([step % 251]) * 300_000
        assert len(store.complete(tmp_path)) >= 2
        store.clean_staging(tmp_path)
        last = step


def test_c31_half_files_under_a_final_name_are_passed_over(tmp_path: Path) -> None:
    """What a copy that was cut off, or a file system that loses data, leaves behind."""
    begin(tmp_path)
    newest = tmp_path / "checkpoints" / "step-00000002"
    (newest / "weights").write_bytes(b"")
    found, skipped = store.newest(tmp_path)
    assert found == tmp_path / "checkpoints" / "step-00000001"
    assert [Path(problem.where).name for problem in skipped] == ["step-00000002"]
    assert "cut off (0 of 1000 bytes)" in str(skipped[0])
