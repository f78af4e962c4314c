"""Attention back ends: SDPA by itself, the others on demand, and a clear word where one cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from trainers.core.errors import UserError
from trainers.memory.attention import use_attention


class Network(nn.Module):
    """Records what is set; `answer` is what enabling xformers raises."""

    def __init__(self, answer: Exception | None = None) -> None:
        super().__init__()
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
