"""Memory on the card: the peak of a run against its plan, a full-size network, and a limit that holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.gpu.conftest import Run
from tests.tiny import family_of
from trainers.adapters.lora import Config as LoraConfig
from trainers.adapters.lora import build
from trainers.core.random import normal
from trainers.memory.checkpointing import checkpoint_activations
from trainers.memory.device import Device, limit_memory
from trainers.memory.estimate import estimate

Record = Callable[[str, object], None]
GIB = 1024**3


@pytest.fixture
def peak(card: Device) -> Iterator[Callable[[], int]]:
    """Bytes at the highest point since the test began."""
    module = torch.get_device_module(card.device)
    module.empty_cache()
    module.reset_peak_memory_stats(card.device)
    yield lambda: int(module.max_memory_allocated(card.device))
    module.empty_cache()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_card_memory_of_a_run_stays_below_its_plan(
    train: Run, peak: Callable[[], int], precision: str, record_property: Record
) -> None:
    run = train({}, "run", precision=precision)
    plan = json.loads((run.folder / "plan.json").read_text(encoding="utf-8"))
    record_property("peak_bytes", peak())
    record_property("planned", plan.get("memory"))
    assert 0 < peak() < GIB


def full_size(device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The U-Net of SD 1.5 with random weights."""
    from diffusers import UNet2DConditionModel

    config = family_of("sd15").architecture.config("denoiser")  # type: ignore[attr-defined]
    with torch.device(device):
        network = UNet2DConditionModel.from_config(config)
    network.to(dtype)
    return network


def one_update(card: Device, network: nn.Module, trainables: list[Any], batch: int) -> None:
    """Forward and backward at 512 x 512 pixels, then AdamW."""
    family = family_of("sd15")
    eps = torch.from_numpy(normal(1, "eps", "x", 0, (4, 1, 64, 64))).to(card.device).expand(batch, -1, -1, -1, -1)
    condition = {"context": torch.zeros(batch, 77, 768, device=card.device)}
    times = torch.full((batch,), 0.5, device=card.device)
    optimizer = torch.optim.AdamW([item.parameter for item in trainables], fused=True)
    with card.autocast():
        family.predict(network, eps, times, condition).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_card_memory_of_a_full_size_network(
    card: Device, peak: Callable[[], int], checkpointing: bool, record_property: Record
) -> None:
    """Two micro-batch sizes tell the bytes of activations per token, which `Facts.bytes_per_token` publishes."""
    facts = family_of("sd15").facts
    network = full_size(card.device, card.dtype).train()
    if checkpointing:
        checkpoint_activations(network)
    adapter = build(LoraConfig(rank=16), seed=1)
    trainables = adapter.attach({"denoiser": network}, facts)
    module, peaks = torch.get_device_module(card.device), {}
    for batch in (1, 2):
        one_update(card, network, trainables, batch)
        module.reset_peak_memory_stats(card.device)
        one_update(card, network, trainables, batch)
        peaks[batch] = peak()
    per_token = (peaks[2] - peaks[1]) / (64 * 64)
    compute = SimpleNamespace(precision=card.precision, gradient_checkpointing=checkpointing)
    planned = estimate(facts, LoraConfig(rank=16), compute, 1, (512, 512))
    record_property("peak_bytes", peaks)
    record_property("activation_bytes_per_token", per_token)
    record_property("planned_bytes", planned.total if planned.known else None)
    assert per_token > 0
    assert not planned.known or peaks[1] <= 1.05 * planned.total


def test_card_memory_limit_holds(card: Device) -> None:
    limit_memory(card, GIB)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2 * GIB, dtype=torch.uint8, device=card.device)
    finally:
        limit_memory(card, card.memory()[1])
    torch.empty(GIB + 1, dtype=torch.uint8, device=card.device)
