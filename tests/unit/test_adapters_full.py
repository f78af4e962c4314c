"""A full fine-tune trains the weights it was asked to train, in float32, and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainers.adapters import full
from trainers.adapters._protocol import Adapter, Trainable
from trainers.core.errors import UserError
from trainers.core.facts import Facts

FACTS = Facts(
    name="toy",
    title="Toy",
    prediction="eps",
    path="ddpm",
    latent_channels=4,
    stride_xy=8,
    size_multiple=8,
    native_area=64,
    muon_excluded=("conv_in", "proj_out.*"),
)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(4, 8, 3)
        self.conv = nn.Conv2d(8, 8, 3)
        self.attn = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.table = nn.Parameter(torch.zeros(6, 8))
        self.proj_out = nn.Linear(8, 4)


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(10, 8)
        self.tied = self.shared
        self.fc = nn.Linear(8, 8)


def attach(
    dtype: torch.dtype = torch.float32, **settings: Any
) -> tuple[dict[str, nn.Module], Adapter, list[Trainable]]:
    modules: dict[str, nn.Module] = {"denoiser": Denoiser().to(dtype), "text_encoder": Text().to(dtype)}
    adapter = full.build(full.Config(**settings))
    return modules, adapter, adapter.attach(modules, FACTS)


def test_trains_every_weight_of_its_parts_and_nothing_else() -> None:
    modules, _, trained = attach()
    assert {item.name for item in trained} == {f"denoiser.{n}" for n, _ in modules["denoiser"].named_parameters()}
    assert not any(p.requires_grad for p in modules["text_encoder"].parameters())


def test_master_weights_are_float32_and_the_frozen_part_keeps_its_type() -> None:
    modules, _, trained = attach(torch.bfloat16)
    assert {item.parameter.dtype for item in trained} == {torch.float32}
    assert next(modules["text_encoder"].parameters()).dtype == torch.bfloat16
    live = dict(modules["denoiser"].named_parameters())
    assert all(live[item.name.removeprefix("denoiser.")] is item.parameter for item in trained)


def test_roles() -> None:
    roles = {item.name: item.role for item in attach(parts=["denoiser", "text_encoder"])[2]}
    assert roles == {
        "denoiser.table": "embedding",
        "denoiser.conv_in.weight": "io",
        "denoiser.conv_in.bias": "vector",
        "denoiser.conv.weight": "conv",
        "denoiser.conv.bias": "vector",
        "denoiser.attn.weight": "matrix",
        "denoiser.attn.bias": "vector",
        "denoiser.norm.weight": "vector",
        "denoiser.norm.bias": "vector",
        "denoiser.proj_out.weight": "io",
        "denoiser.proj_out.bias": "vector",
        "text_encoder.shared.weight": "embedding",
        "text_encoder.fc.weight": "matrix",
        "text_encoder.fc.bias": "vector",
    }


def test_patterns_and_rates() -> None:
    modules, _, trained = attach(
        parts=["denoiser", "text_encoder"],
        include=["*attn*", "fc.weight", "norm.bias"],
        exclude=["*.bias"],
        lr={"text_encoder": 1e-6},
    )
    assert {item.name: item.lr for item in trained} == {"denoiser.attn.weight": None, "text_encoder.fc.weight": 1e-6}
    assert sum(p.requires_grad for module in modules.values() for p in module.parameters()) == 2
    with pytest.raises(UserError, match=r"train\.include.*atn[\s\S]*attn"):
        attach(include=["*.atn.weight"])
    with pytest.raises(UserError, match="no weight is left"):
        attach(exclude=["*"])


def test_state_goes_there_and_back_and_is_strict() -> None:
    _, source, _ = attach()
    _, target, _ = attach()
    target.load(source.state())
    assert all(torch.equal(value, source.state()[name]) for name, value in target.state().items())
    assert target.merged_weights().keys() == source.state().keys()
    with pytest.raises(UserError, match=r"lacks denoiser\.attn\.weight"):
        target.load({k: v for k, v in source.state().items() if k != "denoiser.attn.weight"})


def test_the_untrained_base_is_gone_and_says_so() -> None:
    _, adapter, _ = attach()
    with pytest.raises(UserError, match="overwrites the base"):
        adapter.disabled()
