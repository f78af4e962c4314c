"""A restored optimizer state lies in memory as its weight does, whatever order it was saved in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainers.adapters._protocol import Trainable
from trainers.core import discover
from trainers.core.errors import UserError
from trainers.optimizers._facade import Bundle
from trainers.optimizers._protocol import make_bundle

SETTINGS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 0.05}, "adafactor": {"lr": 0.05}, "lion": {"lr": 0.05}, "schedule_free": {"lr": 0.05},
    "prodigy": {"d0": 1e-2}, "custom": {"lr": 0.05, "path": "torch.optim.NAdam"},
}  # fmt: skip
ORDERS = [(torch.contiguous_format, torch.channels_last), (torch.channels_last, torch.contiguous_format)]


def kernel(order: torch.memory_format, value: torch.Tensor | None = None) -> Trainable:
    start = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(2)) if value is None else value
    return Trainable("denoiser.conv", "denoiser", nn.Parameter(start.clone(memory_format=order)), "conv", None)


def bundle(kind: str, item: Trainable, **more: Any) -> Bundle:
    config = discover.load("trainers.optimizers", kind).Config(kind=kind, **{**SETTINGS.get(kind, {}), **more})
    return make_bundle(config, [item])


def steps(optimizer: Bundle, item: Trainable, first: int, last: int) -> None:
    for number in range(first, last):
        gradient = torch.sin(item.parameter.detach().contiguous() * 3 + number)
        gradient += torch.linspace(-1, 1, 216).view(6, 4, 3, 3)
        item.parameter.grad = torch.empty_like(item.parameter).copy_(gradient)
        optimizer.step()


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize(("before", "after"), ORDERS, ids=["to channels last", "from channels last"])
def test_another_order_in_memory_changes_nothing(
    kind: str, before: torch.memory_format, after: torch.memory_format
) -> None:
    straight = kernel(before)
    optimizer = bundle(kind, straight)
    steps(optimizer, straight, 0, 3)
    resumed = kernel(after, straight.parameter.detach())
    other = bundle(kind, resumed)
    other.load_state_dict(optimizer.state_dict())
    for value in other.optimizers[0].state[resumed.parameter].values():
        if isinstance(value, torch.Tensor) and value.shape == resumed.parameter.shape:
            assert value.stride() == resumed.parameter.stride()
    steps(optimizer, straight, 3, 6)
    steps(other, resumed, 3, 6)
    torch.testing.assert_close(resumed.parameter, straight.parameter, rtol=0, atol=2e-6)


def test_averages_in_eight_bits_refuse_it_in_words() -> None:
    """Their scales belong to blocks of memory, so they can't be put into another order."""
    saved = kernel(torch.contiguous_format)
    optimizer = bundle("adamw8bit", saved, min_8bit_size=64)
    steps(optimizer, saved, 0, 2)
    same = bundle("adamw8bit", kernel(torch.contiguous_format), min_8bit_size=64)
    same.load_state_dict(optimizer.state_dict())
    other = bundle("adamw8bit", kernel(torch.channels_last), min_8bit_size=64)
    with pytest.raises(UserError, match=r"8 bits.*another order"):
        other.load_state_dict(optimizer.state_dict())
