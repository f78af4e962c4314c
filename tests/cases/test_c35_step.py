"""C35, second half: an update with numbers that are not finite is left out and counted; nothing bad is ever kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny import Finished, Workbench, same
from trainers.core.errors import EXIT_DONE, UserError
from trainers.engine.step import Stepper

EVERY = {"checkpoint": {"every": "1 steps", "keep": 20}}


@contextmanager
def broken_in(steps: range, value: float = torch.inf) -> Iterator[None]:
    """Within the block the model answers with `value` in these updates."""
    real = Stepper.loss

    def loss(self: Stepper, *arguments: Any) -> Any:
        if self.state.position.step + 1 not in steps:
            return real(self, *arguments)
        predict = self.family.predict
        with mock.patch.object(type(self.family), "predict", lambda _, *given: predict(*given) + value):
            return real(self, *arguments)

    with mock.patch.object(Stepper, "loss", loss):
        yield


def assert_nothing_broken_on_the_disk(run: Finished) -> None:
    files = list(run.folder.rglob("*.safetensors"))
    assert files
    for file in files:
        for name, tensor in load_file(file).items():
            assert not tensor.is_floating_point() or torch.isfinite(tensor).all(), f"{file}: {name}"


@pytest.mark.parametrize(
    "settings",
    [
        {"ema": {"enabled": True}},
        {"objective": {"kind": "denoising", "loss": "l1"}},  # the gradient of |inf| is finite
        {"optimizer": {"kind": "muon", "lr": 1e-2}, "compute": {"precision": "fp16"}},
    ],
    ids=["ema", "l1", "fp16"],
)
def test_update_six_is_left_out_and_the_run_goes_on(bench: Workbench, settings: dict[str, Any]) -> None:
    with broken_in(range(6, 7)):
        run = bench.run({"run": {"length": "8 steps"}, **EVERY, **settings})
    assert run.code == EXIT_DONE
    assert any("update 6 left out" in warning for warning in run.warnings)
    assert same(run.weights(5), run.weights(6))
    assert not same(run.weights(6), run.weights(7))
    assert [run.saved(step, "progress")["skipped_updates"] for step in (6, 7)] == [1, 0]
    if "ema" in settings:
        assert same(run.saved(5, "averages"), run.saved(6, "averages"))
    if "compute" in settings:
        scales = [run.saved(step, "progress")["scaler"]["scale"] for step in (5, 6)]
        assert scales[1] == scales[0] / 2
    assert [event.step for event in run.metrics] == list(range(1, 9))
    assert_nothing_broken_on_the_disk(run)


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_too_many_in_a_row_end_the_run_with_the_last_good_state(bench: Workbench, value: float) -> None:
    with broken_in(range(4, 99), value), pytest.raises(UserError, match="3 updates in a row.*step 6"):
        bench.run({"run": {"length": "20 steps"}, "step": {"nan_limit": 3}, **EVERY})
    run = Finished(bench.folder / "runs" / "run", 1)
    assert run.events[-1].state == "failed"
    assert same(run.weights(3), run.weights(5))
    assert not (run.folder / "exports").exists() or not list((run.folder / "exports").iterdir())
    assert_nothing_broken_on_the_disk(run)


def test_weights_that_are_not_finite_are_never_saved_or_exported(bench: Workbench) -> None:
    real = Stepper.update

    def update(self: Stepper, batch: Any) -> Any:
        report = real(self, batch)
        if report.step == 3:
            with torch.no_grad():
                self.state.trainables[0].parameter.view(-1)[0] = torch.nan
        return report

    settings = {"checkpoint": {"every": "1 steps", "keep": 20}}
    with mock.patch.object(Stepper, "update", update), pytest.raises(UserError, match="not finite.*nothing was saved"):
        bench.run(settings)
    run = Finished(bench.folder / "runs" / "run", 1)
    assert run.checkpoints == ["step-00000001", "step-00000002"]
    assert_nothing_broken_on_the_disk(run)
