"""Attention back ends: SDPA by itself, the others on demand, and a clear word where one cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.models.attention_processor import Attention
from torch import nn

from trainers.core.errors import UserError
from trainers.memory import attention
from trainers.memory.attention import BySize, use_attention


class Network(nn.Module):
    """Records what is set; `answer` is what enabling xformers raises."""

    def __init__(self, answer: Exception | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.answer = answer
        self.used: list[str] = []

    def set_attn_processor(self, processor: Any) -> None:
        self.used.append(type(processor).__name__)

    def enable_xformers_memory_efficient_attention(self) -> None:
        if self.answer is not None:
            raise self.answer
        self.used.append("xformers")


@pytest.mark.parametrize("wanted", ["auto", "sdpa"])
def test_the_usual_back_end_changes_nothing(wanted: str) -> None:
    network = Network()
    assert use_attention(network, wanted) == "sdpa"
    assert use_attention(nn.Linear(1, 1), wanted) == "sdpa"
    assert network.used == []


@pytest.mark.parametrize(
    ("wanted", "dtype", "used"),
    [("auto", torch.bfloat16, "by size"), ("sdpa", torch.bfloat16, "sdpa"), ("auto", torch.float16, "sdpa")],
)
def test_bf16_on_a_processor_goes_by_size(wanted: str, dtype: torch.dtype, used: str) -> None:
    network = Network().to(dtype)
    assert use_attention(network, wanted) == used
    assert network.used == (["BySize"] if used == "by size" else [])
    assert use_attention(nn.Linear(1, 1).to(dtype), wanted) == "sdpa"  # a network without a choice


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("words", [None, 7])
def test_by_size_gives_the_same_either_way(small: bool, words: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    layer = Attention(query_dim=16, cross_attention_dim=None if words is None else 12, heads=2, dim_head=8)
    x, context = torch.randn(2, 9, 16), None if words is None else torch.randn(2, words, 12)
    wanted = layer(x, context)
    entries = 2 * 2 * 9 * (words or 9)
    monkeypatch.setattr(attention, "_SMALL", entries if small else entries - 1)
    by_size = BySize()
    seen: list[str] = []
    for name in ("_plain", "_kernel"):
        processor = getattr(by_size, name)
        monkeypatch.setattr(by_size, name, lambda *a, p=processor, n=name, **k: (seen.append(n), p(*a, **k))[1])
    layer.set_processor(by_size)
    torch.testing.assert_close(layer(x, context), wanted, rtol=1e-5, atol=1e-6)
    assert seen == ["_plain" if small else "_kernel"]


def test_others_are_used_on_demand() -> None:
    network = Network()
    assert use_attention(network, "eager") == "eager"
    assert use_attention(network, "xformers") == "xformers"
    assert network.used == ["AttnProcessor", "xformers"]


@pytest.mark.parametrize(
    "answer",
    [
        ModuleNotFoundError("Refer to https://example.org for more information\non how to install xformers"),
        ValueError("torch.cuda.is_available() should be True but is False. xformers' memory efficient attention"),
        NotImplementedError("No operator found for `memory_efficient_attention_forward` with inputs:\n ..."),
        RuntimeError("xFormers was built for torch 2.9"),
    ],
)
def test_an_xformers_that_does_not_fit_is_known_before_the_first_step(answer: Exception) -> None:
    with pytest.raises(UserError) as error:
        use_attention(Network(answer), "xformers")
    assert str(answer).splitlines()[0] in str(error.value)
    assert 'use "auto"' in str(error.value)
    assert "compute.attention" in str(error.value)


def test_a_network_without_a_choice_says_so() -> None:
    with pytest.raises(UserError, match='no "eager" attention'):
        use_attention(nn.Linear(1, 1), "eager")
