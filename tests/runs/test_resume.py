"""Stopped and resumed is the same as never stopped, bit for bit, through real checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tiny import Finished, Workbench, same, stopped_after, watched
from trainers.core.errors import EXIT_DONE, EXIT_RESUMABLE
from trainers.engine.step import Stepper

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 1e-2},
    "adamw8bit": {"lr": 1e-2, "min_8bit_size": 64},
    "adafactor": {"lr": 1e-2},
    "custom": {"lr": 1e-2, "path": "torch.optim.NAdam"},
    "lion": {"lr": 1e-3},
    "muon": {"lr": 1e-2},
    "prodigy": {"d0": 1e-3},  # from 1e-6 on, the first steps are too small for float32
    "schedule_free": {"lr": 1e-2},
}


def assert_equal_runs(straight: Finished, resumed: Finished, steps: int) -> None:
    assert straight.code == resumed.code == EXIT_DONE
    assert resumed.losses == straight.losses
    assert len(straight.losses) == steps
    assert resumed.rates == straight.rates
    assert [event.samples for event in resumed.metrics] == [event.samples for event in straight.metrics]
    assert same(straight.weights(steps), resumed.weights(steps))
    assert not [warning for warning in resumed.warnings if "not exact" in warning]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_c30_five_and_five_steps_are_ten_with_every_optimizer(bench: Workbench, kind: str) -> None:
    settings = {
        "run": {"length": "10 steps"},
        "optimizer": {"kind": kind, **OPTIMIZERS[kind]},
        "train": {"rank": 4, "lr": {"mid_block.*": 5e-3} if kind == "adamw" else {}},
        "schedule": {"warmup": "4 steps"},
    }
    straight = bench.run(settings, "straight")
    with stopped_after(5):
        assert bench.run(settings, "split").code == EXIT_RESUMABLE
    assert_equal_runs(straight, bench.run(settings, "split"), 10)
    assert len(set(straight.losses)) == 10


@pytest.mark.parametrize("how", ["ema", "text encoder", "dropout", "full", "fp16", "bf16", "dora"])
def test_everything_that_has_a_state_of_its_own_comes_back(bench: Workbench, how: str) -> None:
    settings: dict[str, Any] = {
        "ema": {"ema": {"enabled": True, "decay": 0.9}},
        "text encoder": {"train": {"parts": ["denoiser", "text_encoder"], "lr": {"text_encoder": 1e-3}}},
        "dropout": {"train": {"dropout": 0.3}, "data": {"caption_dropout": 0.5, "flip": True}},
        "full": {"train": {"kind": "full"}, "optimizer": {"lr": 1e-3}, "export": {"layouts": ["single_file"]}},
        "fp16": {"compute": {"precision": "fp16"}},
        "bf16": {"compute": {"precision": "bf16"}},
        "dora": {"train": {"dora": True, "alpha": 1, "targets": "all", "conv_rank": 2}},
    }[how]
    straight = bench.run(settings, "straight")
    with stopped_after(3):
        assert bench.run(settings, "split").code == EXIT_RESUMABLE
    resumed = bench.run(settings, "split")
    assert_equal_runs(straight, resumed, 6)
    if how == "ema":
        averages = straight.saved(6, "averages")
        assert same(averages, resumed.saved(6, "averages"))
        assert not same(averages, straight.weights(6))
    if how == "fp16":
        assert straight.saved(6, "progress")["scaler"]["scale"] > 1
        assert all(event.loss_scale > 1 for event in straight.metrics)  # seen from outside, too
        assert straight.saved(6, "progress") == resumed.saved(6, "progress")


def test_c27_stopped_inside_an_accumulation(bench: Workbench) -> None:
    settings = {
        "run": {"length": "5 steps"}, "data": {"batch": 4}, "compute": {"micro_batch": 1},
        "schedule": {"kind": "cosine", "warmup": "2 steps"},
    }  # fmt: skip
    with watched() as straight_ids:
        straight = bench.run(settings, "straight")
    with watched() as split_ids:
        with stopped_after(2):  # between micro-batch 1 and 4 of update 2
            assert bench.run(settings, "split").code == EXIT_RESUMABLE
        resumed = bench.run(settings, "split")
    assert split_ids == straight_ids
    assert [number for number, _ in split_ids] == [1, 2, 3, 4, 5]
    assert_equal_runs(straight, resumed, 5)


class PowerCut(Exception):
    """Nothing can be done in time any more."""


def test_c27_lost_inside_an_accumulation(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut at micro-batch 7 of 20: half a group is lost, and is done again from its first sample on."""
    settings = {
        "run": {"length": "5 steps"}, "data": {"batch": 4}, "compute": {"micro_batch": 1},
        "checkpoint": {"every": "1 steps"},
    }  # fmt: skip
    with watched() as straight_ids:
        straight = bench.run(settings, "straight")
    real, calls = Stepper.loss, []

    def loss(self: Stepper, *arguments: Any) -> Any:
        calls.append(True)
        if len(calls) == 7:
            raise PowerCut
        return real(self, *arguments)

    with watched() as split_ids:
        with monkeypatch.context() as patch, pytest.raises(PowerCut):
            patch.setattr(Stepper, "loss", loss)
            bench.run(settings, "split")
        resumed = bench.run(settings, "split")
    assert split_ids == straight_ids
    assert_equal_runs(straight, resumed, 5)


def test_c28_resumed_twice_the_counters_go_on(bench: Workbench) -> None:
    def lasting(steps: int) -> dict[str, Any]:
        return {"run": {"length": f"{steps} steps"}, "checkpoint": {"keep": 9}, "logging": {"tensorboard": True}}

    with watched() as straight_ids:
        straight = bench.run(lasting(40), "straight")
    with watched() as ids:
        for steps in (10, 25, 40):
            before = len(ids)
            parts = bench.run(lasting(steps), "parts")
            assert parts.code == EXIT_DONE
            assert [number for number, _ in ids[before:]] == list(range(before + 1, steps + 1))
    assert ids == straight_ids
    assert [event.step for event in parts.metrics] == list(range(1, 41))  # the order in the file, never back
    assert parts.checkpoints == ["step-00000010", "step-00000025", "step-00000040"]
    assert_equal_runs(straight, parts, 40)
    assert board_steps(parts) == list(range(1, 41))


def test_a_step_that_was_lost_is_shown_once_and_nothing_is_missing(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps done after the last checkpoint are done again; neither log may lose or double them."""
    settings = {"checkpoint": {"every": "2 steps"}, "logging": {"tensorboard": True}}
    real = Stepper.update

    def update(self: Stepper, batch: Any) -> Any:
        if self.state.position.step == 5:
            raise PowerCut
        return real(self, batch)

    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        patch.setattr(Stepper, "update", update)
        bench.run(settings)
    run = bench.run(settings)
    assert [event.step for event in run.metrics] == [1, 2, 3, 4, 5, 6]
    assert board_steps(run) == [1, 2, 3, 4, 5, 6]


def board_steps(run: Finished) -> list[int]:
    """The steps that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run.folder / "logs" / "tensorboard"))
    board.Reload()
    return [entry.step for entry in board.Scalars("train/loss")]


def test_another_rate_and_length_are_told_before_the_first_step(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainers.launch import local

    bench.run({"run": {"length": "2 steps"}})
    path = bench.preset({"run": {"length": "3 steps"}, "optimizer": {"lr": 5e-3}})
    capsys.readouterr()
    assert local.run(path, out=str(bench.folder / "runs" / "run"), cache=str(bench.cache)) == EXIT_DONE
    said = capsys.readouterr().out
    assert "run.length: '2 steps' -> '3 steps'" in said
    assert "optimizer.lr: 0.01 -> 0.005" in said
    assert said.index("optimizer.lr") < said.index("step 3/3")
    assert "train.rank" not in said


def test_an_unchanged_preset_changes_nothing(bench: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    from trainers.launch import local

    path = bench.preset({"run": {"length": "2 steps"}})
    for _ in range(2):
        local.run(path, out=str(bench.folder / "runs" / "run"), cache=str(bench.cache))
    assert "has changed" not in capsys.readouterr().out


def test_the_state_of_another_optimizer_is_refused_in_words(bench: Workbench) -> None:
    from trainers.core.errors import UserError

    bench.run({"run": {"length": "2 steps"}})
    with pytest.raises(UserError, match="belongs to AdamW, this run uses Lion"):
        bench.run({"run": {"length": "4 steps"}, "optimizer": {"kind": "lion", "lr": 1e-3}})
    assert bench.run({"run": {"length": "4 steps"}}).code == EXIT_DONE
