"""The main job as a newcomer meets it: one command, no network; the subject is there afterwards and was not before."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Cli
from trainers.presets.load import load_preset
from trainers.rundir.events import ExportEvent, MetricEvent, PreviewEvent, ProofEvent, read
from trainers.rundir.layout import RunDir
from trainers.rundir.status import read_status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SUBJECT = "a 3d zkw cat, grinning, blue background"


@pytest.fixture(scope="module")
def quickstart(root: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The run of `trainers run presets/quickstart.toml` in a process that cannot open a socket."""
    import subprocess
    import sys

    from tests.conftest import NO_SOCKETS

    folder = tmp_path_factory.mktemp("quick start ü")
    (folder / "sitecustomize.py").write_text(NO_SOCKETS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(root)])}
    command = [
        sys.executable,
        "-m",
        "trainers",
        "run",
        str(root / "presets" / "quickstart.toml"),
        "--out",
        str(folder / "run"),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "run" / "said.txt").write_text(done.stdout, encoding="utf-8")
    return RunDir(folder / "run")


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


def small(path: Path) -> np.ndarray:
    """A picture as 32 x 32 x 3 numbers in 0..1."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").resize((32, 32), Image.Resampling.BOX), dtype=np.float64) / 255


def likeness(run: RunDir, step: int, index: int, real: list[np.ndarray]) -> float:
    """How far a preview is from the nearest real picture of the subject, in its middle (mean absolute difference)."""
    middle = (slice(6, 26), slice(6, 26))
    painted = small(run.samples_of(step) / f"{index:02d}.png")[middle]
    return min(float(np.abs(painted - picture[middle]).mean()) for picture in real)


def test_quickstart(quickstart: RunDir, root: Path, cli: Cli, tmp_path: Path) -> None:
    """One run, looked at from all sides; as one test, since tests of a module may land in different processes."""
    everything_is_where_it_says(quickstart)
    everything_trained_and_the_loss_fell(quickstart)
    the_subject_is_there_afterwards_and_was_not_before(quickstart, root)
    the_lora_file_alone_paints_the_subject(quickstart, root, cli, tmp_path)


def everything_is_where_it_says(quickstart: RunDir) -> None:
    said = (quickstart.folder / "said.txt").read_text(encoding="utf-8")
    assert read_status(quickstart).state == "done"
    for part in ("plan", "proof: all", "exported and verified", "before and after", "trainers sample", "ComfyUI"):
        assert part in said
    assert (quickstart.samples / "overview.png").stat().st_size > 10_000
    exported = [event for event in read(quickstart.events) if isinstance(event, ExportEvent)]
    assert {event.layout for event in exported} == {"kohya", "diffusers"}
    assert all((quickstart.folder / event.path).is_file() for event in exported)


def everything_trained_and_the_loss_fell(quickstart: RunDir) -> None:
    events = read(quickstart.events)
    assert [event.holds for event in events if isinstance(event, ProofEvent)] == [True]
    losses = [event.loss for event in events if isinstance(event, MetricEvent)]
    planned = json.loads(quickstart.plan.read_text(encoding="utf-8"))["total_steps"]
    assert len(losses) == planned
    assert np.mean(losses[-50:]) < 0.8 * np.mean(losses[:20])


def the_subject_is_there_afterwards_and_was_not_before(quickstart: RunDir, root: Path) -> None:
    real = [small(path) for path in sorted((root / "datasets" / "yellow-cat").glob("*.png"))]
    previews = [event for event in read(quickstart.events) if isinstance(event, PreviewEvent)]
    last = max(event.step for event in previews)
    asked = [index for index, prompt in enumerate(previews[0].prompts) if "zkw cat" in prompt]
    assert len(asked) >= 3
    before = [likeness(quickstart, 0, index, real) for index in asked]
    after = [likeness(quickstart, last, index, real) for index in asked]
    assert np.mean(after) < 0.6 * np.mean(before), (before, after)


def the_lora_file_alone_paints_the_subject(quickstart: RunDir, root: Path, cli: Cli, tmp_path: Path) -> None:
    preset = load_preset(quickstart.preset).preset
    lora = next(quickstart.exports.glob("*.safetensors"))
    out = tmp_path / "cat.png"
    done = cli(
        "sample", lora, "--base", "builtin:starter", "--prompt", SUBJECT, "--out", out, "--steps", preset.preview.steps,
        "--guidance", preset.preview.guidance,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    real = [small(path) for path in sorted((root / "datasets" / "yellow-cat").glob("*.png"))]
    middle = (slice(6, 26), slice(6, 26))
    assert min(float(np.abs(small(out)[middle] - picture[middle]).mean()) for picture in real) < 0.15
