"""Whole runs of a tiny model on the card: as on the CPU, repeatable, resumable, whatever saves memory or time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.conftest import Run
from tests.tiny import Finished, apart, same, stopped_after
from trainers.core.errors import EXIT_DONE, EXIT_RESUMABLE

pytestmark = pytest.mark.filterwarnings("ignore:.*deterministic.*:UserWarning")
Record = Callable[[str, object], None]

NEAR = {"fp32": 1e-3, "bf16": 5e-2, "fp16": 1e-2}  # of the CPU's fp32 losses, which are about 1
STEPS = {"run": {"length": "10 steps"}, "optimizer": {"lr": 1e-3}}
HAS_STATE: dict[str, dict[str, Any]] = {
    "lora": {},
    "dropout": {"train": {"dropout": 0.3}, "data": {"caption_dropout": 0.5, "flip": True}},
    "text encoder": {"train": {"parts": ["denoiser", "text_encoder"]}},
    "full": {"train": {"kind": "full"}, "optimizer": {"lr": 1e-4}, "export": {"layouts": ["single_file"]}},
    "ema": {"ema": {"enabled": True, "decay": 0.9}},
}
ATTENTION = ["sdpa", "eager", *(["xformers"] if importlib.util.find_spec("xformers") else [])]


def gap(one: Finished, other: Finished) -> float:
    """The largest difference of two loss curves."""
    assert one.code == other.code == EXIT_DONE
    return max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True))


@pytest.mark.parametrize("precision", NEAR)
def test_the_loss_curve_is_the_cpus(train: Run, precision: str, record_property: Record) -> None:
    on_card, on_cpu = train(STEPS, "card", precision=precision), train(STEPS, "cpu", device="cpu")
    record_property("largest_difference", gap(on_card, on_cpu))
    assert gap(on_card, on_cpu) < NEAR[precision]
    scaler = on_card.saved(10, "progress")["scaler"]
    assert (scaler.get("scale", 0) > 1) is (precision == "fp16")


def test_dropout_hides_the_same_on_the_card_and_on_the_cpu(train: Run, record_property: Record) -> None:
    """Another mask would change the losses in their first digits."""
    settings = {**STEPS, "train": {"dropout": 0.5}}
    on_card, on_cpu = train(settings, "card"), train(settings, "cpu", device="cpu")
    record_property("largest_difference", gap(on_card, on_cpu))
    assert gap(on_card, on_cpu) < NEAR["fp32"]


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("precision", NEAR)
@pytest.mark.parametrize("kind", HAS_STATE)
def test_resumed_on_the_card_is_never_stopped_bit_for_bit(train: Run, kind: str, precision: str) -> None:
    settings = HAS_STATE[kind]
    straight = train(settings, "straight", precision=precision)
    with stopped_after(3):
        assert train(settings, "split", precision=precision).code == EXIT_RESUMABLE
    resumed = train(settings, "split", precision=precision)
    assert resumed.losses == straight.losses
    assert same(resumed.weights(6), straight.weights(6))
    assert resumed.saved(6, "progress") == straight.saved(6, "progress")


def test_without_asking_for_exact_kernels_runs_repeat_closely(train: Run, record_property: Record) -> None:
    one, other = train(STEPS, "one"), train(STEPS, "other")
    record_property("bit_for_bit", same(one.weights(10), other.weights(10)))
    record_property("weights_apart", apart(one.weights(10), other.weights(10)))
    assert gap(one, other) < NEAR["fp32"]


@pytest.mark.parametrize("setting", ["gradient_checkpointing", "channels_last"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_saves_memory_or_time_changes_no_result(
    train: Run, setting: str, precision: str, record_property: Record
) -> None:
    off, on = (
        train({**STEPS, "compute": {setting: value}}, f"{setting}-{value}", precision=precision)
        for value in (False, True)
    )
    record_property("largest_difference", gap(on, off))
    assert gap(on, off) < NEAR[precision]


@pytest.mark.parametrize("attention", ATTENTION)
def test_every_attention_gives_the_same_curve(train: Run, attention: str, record_property: Record) -> None:
    usual, other = train(STEPS, "usual"), train({**STEPS, "compute": {"attention": attention}}, attention)
    record_property("largest_difference", gap(usual, other))
    assert gap(usual, other) < NEAR["fp32"]


def test_micro_batches_equal_the_big_batch(train: Run, record_property: Record) -> None:
    whole, cut = (
        train({**STEPS, "data": {"batch": 4}, "compute": {"micro_batch": size}}, f"micro-{size}") for size in (4, 1)
    )
    record_property("largest_difference", gap(whole, cut))
    assert gap(whole, cut) < NEAR["fp32"]
