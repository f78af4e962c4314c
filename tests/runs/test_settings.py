"""Whole runs with one thing different: memory switches, class pictures, validation, masks, a folder in use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pictures import make_pictures
from tests.tiny import Finished, Workbench, apart, batches_of
from trainers.core.errors import EXIT_DONE, EXIT_RESUMABLE, UserError
from trainers.engine.callbacks import Control, Prove
from trainers.engine.preview import Painter
from trainers.engine.step import Stepper
from trainers.optimizers._facade import Bundle
from trainers.rundir import control, lock
from trainers.rundir.layout import RunDir


@pytest.mark.parametrize("kind", ["lora", "dropout", "full"])
def test_c33_gradient_checkpointing_changes_nothing(bench: Workbench, kind: str) -> None:
    parts = ["denoiser", "text_encoder"]
    train: dict[str, Any] = {"kind": "full" if kind == "full" else "lora", "parts": parts}
    if kind == "dropout":
        train["dropout"] = 0.3

    def settings(checkpointing: bool) -> dict[str, Any]:
        layouts = ["single_file"] if kind == "full" else ["kohya"]
        return {
            "run": {"length": "2 steps"}, "train": train, "compute": {"gradient_checkpointing": checkpointing},
            "optimizer": {"kind": "custom", "path": "torch.optim.SGD", "lr": 1.0}, "export": {"layouts": layouts},
        }  # fmt: skip

    off, on = bench.run(settings(False), "off"), bench.run(settings(True), "on")
    assert off.losses == pytest.approx(on.losses, rel=1e-6)
    assert apart(off.weights(2), on.weights(2)) < 1e-6
    if kind != "full":
        ups = {name: weight for name, weight in on.weights(2).items() if name.endswith("lora_B.weight")}
        assert [name for name, weight in ups.items() if not weight.any()] == []


def class_concepts(prior: int, **more: Any) -> dict[str, Any]:
    beside = {"folder": "class", "role": "class", "prompt": "a photo of a dog", "generate": prior, **more}
    return {"concepts": [{"folder": "pictures", "trigger": "zkw"}, beside], "batch": 4, "prior_weight": 0.5}


PREVIEW = {"size": [64, 64], "steps": 1}


def test_class_pictures_are_made_once_and_weigh_what_they_should(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted = []
    real = Painter.paint

    def paint(self: Painter, settings: Any, *rest: Any) -> Any:
        painted.extend(settings.prompts)
        return real(self, settings, *rest)

    monkeypatch.setattr(Painter, "paint", paint)
    settings = {"data": class_concepts(3), "preview": PREVIEW}
    with batches_of() as steps:
        first = bench.run(settings, "first")
    folder = bench.folder / "class"
    made = sorted(path.name for path in folder.glob("*.png"))
    assert len(made) == 3
    assert painted == ["a photo of a dog"] * 3
    times = [path.stat().st_mtime_ns for path in sorted(folder.iterdir())]
    second = bench.run(settings, "second")
    assert len(painted) == 3
    assert [path.stat().st_mtime_ns for path in sorted(folder.iterdir())] == times
    assert second.losses == first.losses
    for step in steps:
        for micro in step.micro:
            for caption, weight in zip(micro.captions, micro.weight.tolist(), strict=True):
                assert ("zkw" in caption) == (weight == 1.0), caption
                assert weight in (1.0, 0.5)
        assert step.total_weight == sum(float(micro.weight.sum()) for micro in step.micro)
        shares = [sum("zkw" in text for micro in step.micro for text in micro.captions), step.samples]
        assert abs(2 * shares[0] - shares[1]) <= 1


def test_class_pictures_of_ones_own_are_completed_not_doubled(bench: Workbench) -> None:
    make_pictures(bench.folder / "class", 2, captions=False)
    run = bench.run({"run": {"length": "1 steps"}, "data": class_concepts(3), "preview": PREVIEW})
    assert run.code == EXIT_DONE
    assert len(list((bench.folder / "class").glob("*.png"))) == 3


def held_out(bench: Workbench) -> dict[str, Any]:
    make_pictures(bench.folder / "held", 3, first=30)
    return {"concepts": [{"folder": "pictures"}, {"folder": "held", "role": "validation"}], "caption_dropout": 0.5}


OBJECTIVE = {"kind": "denoising", "noise_offset": 0.1, "pyramid_noise": True, "input_perturbation": 0.1}


def measured(run: Finished) -> list[tuple[float, dict[str, float]]]:
    return [(event.loss, event.by_time) for event in run.events if event.type == "validation"]


def test_validation_of_frozen_weights_is_constant(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bundle, "step", lambda self: None)
    monkeypatch.setattr(Prove, "on_step", lambda *_: None)
    settings = {
        "data": held_out(bench), "validation": {"every": "1 steps", "times": 3}, "train": {"dropout": 0.3},
        "objective": OBJECTIVE, "run": {"length": "3 steps"},
    }  # fmt: skip
    run = bench.run(settings)
    assert len(measured(run)) == 4
    assert all(found == measured(run)[0] for found in measured(run))
    assert len(measured(run)[0][1]) == 3
    assert len(set(run.losses)) == 3


def test_validation_does_not_depend_on_the_micro_batch_and_follows_the_weights(bench: Workbench) -> None:
    settings = {"data": held_out(bench), "validation": {"every": "3 steps"}}
    two = measured(bench.run(settings, "two"))
    one = measured(bench.run({**settings, "compute": {"micro_batch": 1}}, "one"))
    assert [loss for loss, _ in one] == pytest.approx([loss for loss, _ in two], rel=1e-5)
    assert two[0][0] != two[-1][0]


def test_a_folder_in_use_is_refused_and_left_alone(bench: Workbench) -> None:
    run = bench.run({"run": {"length": "1 steps"}})
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*") if path.is_file() and path.name != "lock"}
    with lock.hold(RunDir(run.folder)), pytest.raises(UserError) as caught:
        bench.run({"run": {"length": "2 steps"}})
    assert str(os.getpid()) in str(caught.value)
    after = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*") if path.is_file() and path.name != "lock"}
    assert {path: time for path, time in after.items() if path in before} == before
    assert bench.run({"run": {"length": "2 steps"}}).code == EXIT_DONE


def ask_after(step: int, folder: Path, name: Any, patch: pytest.MonkeyPatch) -> None:
    """Put a request into the run's folder when update number `step` is done."""
    real = Stepper.update

    def update(self: Stepper, batch: Any) -> Any:
        report = real(self, batch)
        if report.step == step:
            control.request(RunDir(folder), name)
        return report

    patch.setattr(Stepper, "update", update)
    patch.setattr(Control.__init__, "__defaults__", (0.0,))


@pytest.mark.parametrize(("name", "kept"), [("stop", ["step-00000003"]), ("stop_now", [])])
def test_a_request_stops_a_run_with_or_without_saving(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, name: str, kept: list[str]
) -> None:
    ask_after(3, bench.folder / "runs" / "run", name, monkeypatch)
    run = bench.run()
    assert run.code == EXIT_RESUMABLE
    assert run.checkpoints == kept
    assert run.events[-1].state == "stopped"
    assert [event.answer for event in run.events if event.type == "request"] == ["heard", "done"]
    assert control.poll(RunDir(run.folder)) == []


def test_a_request_saves_and_the_run_goes_on(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_after(3, bench.folder / "runs" / "run", "save", monkeypatch)
    run = bench.run()
    assert run.code == EXIT_DONE
    assert run.checkpoints == ["step-00000003", "step-00000006"]


def test_bf16_learns_what_fp32_learns(bench: Workbench) -> None:
    fine = bench.run({"compute": {"precision": "fp32"}}, "fine")
    half = bench.run({"compute": {"precision": "bf16"}}, "half")
    assert half.losses == pytest.approx(fine.losses, rel=0.05)
    assert half.losses != fine.losses
    assert {weight.dtype for weight in half.weights(6).values()} == {torch.float32}


def test_small_updates_are_not_rounded_away_in_bf16(bench: Workbench) -> None:
    """Weights of a full fine-tune are float32 also where the forward pass is bf16: an update of 1e-6 is kept."""
    settings = {
        "train": {"kind": "full"}, "optimizer": {"lr": 1e-6, "weight_decay": 0.0}, "compute": {"precision": "bf16"},
        "run": {"length": "4 steps"}, "export": {"layouts": ["single_file"]}, "data": {"area": "128px"},
        "checkpoint": {"every": "1 steps", "keep": 9},
    }  # fmt: skip
    run = bench.run(settings)
    first, last = run.weights(1), run.weights(4)
    moved = [float((first[name] != last[name]).float().mean()) for name in first]
    assert sum(share > 0.5 for share in moved) > 0.9 * len(moved)


def test_a_preset_with_typos_starts_nothing(bench: Workbench, cli: Any) -> None:
    """C39 for `run`: every problem at once, exit code 64, and no folder is made."""
    path = bench.preset({"optimizer": {"learning-rate": 1e-4}, "train": {"lr": 1e-4}, "run": {"epochs": "ten"}})
    done = cli("run", path, "--out", bench.folder / "out")
    assert done.returncode == 64
    for place in ("optimizer.learning-rate", "train.lr", "run.epochs"):
        assert place in done.stdout + done.stderr
    assert not (bench.folder / "out").exists()
