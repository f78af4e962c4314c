"""Recomputing activations: when it is on by itself, and that it is never the form that cuts gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.fake_devices import GIB
from trainers.memory.checkpointing import checkpoint_activations, wants_checkpointing

LARGE, SMALL = 860_000_000, 13_000_000


@pytest.mark.parametrize(
    ("wanted", "kind", "memory", "parameters", "on"),
    [
        ("auto", "cuda", 8 * GIB, LARGE, True),
        ("auto", "cuda", 24 * GIB, LARGE, False),
        ("auto", "cuda", 8 * GIB, SMALL, False),
        ("auto", "mps", 16 * GIB, LARGE, True),
        ("auto", "xpu", 16 * GIB, LARGE, True),
        ("auto", "cpu", 8 * GIB, LARGE, False),
        (True, "cpu", 64 * GIB, SMALL, True),
        (False, "cuda", 4 * GIB, LARGE, False),
    ],
)
def test_auto_recomputes_where_memory_is_scarcer_than_time(
    wanted: bool | str, kind: str, memory: int, parameters: int, on: bool
) -> None:
    assert wants_checkpointing(wanted, device_kind=kind, device_bytes=memory, parameters=parameters) is on


class Blocks(nn.Module):
    """Two layers behind a transformers-like switch; `recomputed` counts forward passes of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.settings: dict[str, Any] | None = None
        self.passes = 0

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        self.settings = gradient_checkpointing_kwargs

    def _inner(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return torch.tanh(self.first(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self._inner(x) if self.settings is None else checkpoint(self._inner, x, **self.settings)
        return self.second(hidden)


def gradients(network: Blocks) -> list[torch.Tensor]:
    network.zero_grad()
    network(torch.linspace(-1, 1, 8).view(2, 4)).square().sum().backward()
    return [weight.grad.clone() for weight in network.parameters() if weight.grad is not None]


def test_gradients_are_the_same_and_none_is_cut() -> None:
    """The input wants no gradient, as with a frozen first layer: the re-entrant form would lose the first layer's."""
    torch.manual_seed(1)
    network = Blocks()
    plain = gradients(network)
    checkpoint_activations(network)
    assert network.settings == {"use_reentrant": False}
    network.passes = 0
    recomputed = gradients(network)
    assert network.passes == 2
    assert len(recomputed) == len(plain) == 4
    assert all(torch.equal(one, other) for one, other in zip(plain, recomputed, strict=True))


def test_diffusers_own_switch_is_used_where_there_is_one() -> None:
    switched: list[str] = []

    class Network(nn.Module):
        def enable_gradient_checkpointing(self) -> None:
            switched.append("on")

    checkpoint_activations(Network())
    checkpoint_activations(nn.Linear(1, 1))  # nothing to switch: left as it is
    assert switched == ["on"]
