"""Which layers a LoRA preset means, and what is saved, loaded and merged."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
import torch
from torch import Tensor, nn

from trainers.adapters import lora
from trainers.adapters._lora import LoraAdapter
from trainers.adapters._protocol import Trainable
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
    targets={"attention": ("*.attn.to_*",), "mlp": ("*.ff",)},
    text_targets=("q_proj",),
    muon_excluded=("conv_in",),
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.ModuleDict({"to_q": nn.Linear(8, 8), "to_out": nn.ModuleList([nn.Linear(8, 8)])})
        self.ff = nn.Linear(8, 8)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1)
        self.proj = nn.Conv2d(8, 8, 1)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(4, 8, 3, padding=1)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(8)


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.layer = nn.ModuleDict({"q_proj": nn.Linear(8, 8), "fc1": nn.Linear(8, 8)})


def attach(seed: int = 1, **settings: Any) -> tuple[dict[str, nn.Module], LoraAdapter, list[Trainable]]:
    torch.manual_seed(0)
    modules = {"denoiser": Denoiser(), "text_encoder": Text()}
    adapter = lora.build(lora.Config(**{"rank": 4, **settings}), seed)
    assert isinstance(adapter, LoraAdapter)
    return modules, adapter, adapter.attach(modules, FACTS)


def layers(**settings: Any) -> list[str]:
    return list(attach(**settings)[1].layers)


def test_named_sets_and_patterns_choose_layers() -> None:
    attention = [f"denoiser.blocks.{i}.attn.{leaf}" for i in (0, 1) for leaf in ("to_q", "to_out.0")]
    assert layers() == attention
    assert layers(targets="attention+mlp") == sorted(
        [*attention, "denoiser.blocks.0.ff", "denoiser.blocks.1.ff"], key=lambda name: (name[16], "ff" in name)
    )
    assert layers(targets=["blocks.1.ff"]) == ["denoiser.blocks.1.ff"]
    assert layers(targets=["ff"]) == ["denoiser.blocks.0.ff", "denoiser.blocks.1.ff"]
    assert layers(targets=["denoiser.blocks.0.*"])[-1] == "denoiser.blocks.0.proj"
    everything = layers(targets="all", conv_rank=2, parts=["denoiser", "text_encoder"])
    assert "denoiser.conv_in" in everything
    assert "text_encoder.layer.fc1" in everything
    assert layers(parts=["denoiser", "text_encoder"])[-1] == "text_encoder.layer.q_proj"


def test_wide_convolutions_need_conv_rank_and_narrow_ones_do_not() -> None:
    found = layers(targets="all")
    assert "denoiser.blocks.0.proj" in found
    assert "denoiser.blocks.0.conv1" not in found
    _, adapter, _ = attach(targets="all", conv_rank=2, conv_alpha=1, alpha=2)
    conv, proj = (adapter.layers[f"denoiser.blocks.0.{leaf}"] for leaf in ("conv1", "proj"))
    assert (conv.rank, conv.factor) == (2, 0.5)
    assert (proj.rank, proj.factor) == (4, 0.5)
    assert adapter.state()["denoiser.blocks.0.conv1.lora_A.weight"].shape == (2, 8, 3, 3)
    assert adapter.state()["denoiser.blocks.0.conv1.lora_B.weight"].shape == (8, 2, 1, 1)


def test_ranks_and_rates_per_pattern() -> None:
    _, adapter, trained = attach(
        alpha=2,
        ranks={"blocks.1.*": 8, "blocks.1.attn.to_out.0": 0, "text_encoder": 2},
        lr={"text_encoder": 1e-5, "*.to_q": 3e-4},
        parts=["denoiser", "text_encoder"],
    )
    assert {name: layer.rank for name, layer in adapter.layers.items()} == {
        "denoiser.blocks.0.attn.to_q": 4,
        "denoiser.blocks.0.attn.to_out.0": 4,
        "denoiser.blocks.1.attn.to_q": 8,
        "text_encoder.layer.q_proj": 2,
    }
    assert {layer.factor for layer in adapter.layers.values()} == {0.5}
    assert float(adapter.state()["denoiser.blocks.1.attn.to_q.alpha"]) == 4.0
    rates = {item.name.rpartition(".lora_")[0]: item.lr for item in trained}
    assert rates["denoiser.blocks.0.attn.to_q"] == 3e-4
    assert rates["denoiser.blocks.0.attn.to_out.0"] is None
    assert rates["text_encoder.layer.q_proj"] == 1e-5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"targets": ["*.to_qq"]}, r'"\*\.to_qq" matches no layer[\s\S]*attn\.to_q'),
        ({"targets": ["*.nope1", "*.nope2"]}, r"nope1[\s\S]*nope2"),
        ({"targets": "atention"}, 'did you mean "attention"'),
        ({"targets": ["*.conv1"]}, "conv_rank"),
        ({"conv_rank": 4}, "conv_rank has no effect"),
        ({"ranks": {"*.ff": 8}}, r'train\.ranks.*"\*\.ff" matches nothing'),
        ({"lr": {"text_encoder": 1e-5}}, r'train\.lr.*"text_encoder"'),
        ({"parts": ["text_encoder_2"]}, r'no part "text_encoder_2"[\s\S]*denoiser, text_encoder'),
        ({"parts": ["denoiser", "text_encoder"], "targets": ["*.ff"]}, "nothing in text_encoder"),
    ],
)
def test_a_choice_that_means_nothing_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        attach(**settings)


def test_options_without_effect_are_refused() -> None:
    with pytest.raises(pydantic.ValidationError, match="conv_alpha"):
        lora.Config(conv_alpha=1)
    with pytest.raises(pydantic.ValidationError, match="targets"):
        lora.Config(targets=[])


def test_a_grouped_convolution_is_refused() -> None:
    adapter = lora.build(lora.Config(targets=["*"], conv_rank=2))
    with pytest.raises(UserError, match="grouped"):
        adapter.attach({"denoiser": nn.Sequential(nn.Conv2d(8, 8, 3, groups=2))}, FACTS)


def test_only_the_lora_is_trained_and_everything_has_a_role() -> None:
    modules, _, trained = attach(targets="all", conv_rank=2, dora=True, parts=["denoiser", "text_encoder"])
    wanted = {id(item.parameter) for item in trained}
    live = {id(p) for module in modules.values() for p in module.parameters() if p.requires_grad}
    assert live == wanted
    roles = {item.name: item.role for item in trained}
    assert roles["denoiser.blocks.0.ff.lora_A.weight"] == "matrix"
    assert roles["denoiser.blocks.0.ff.dora_scale"] == "vector"
    assert roles["denoiser.blocks.0.conv1.lora_B.weight"] == "conv"
    assert roles["denoiser.conv_in.lora_A.weight"] == "io"


def test_the_start_depends_on_seed_and_name_only() -> None:
    first, again, other = (attach(seed)[1].state() for seed in (1, 1, 2))
    wider = attach(1, targets="all")[1].state()
    name = "denoiser.blocks.1.attn.to_q.lora_A.weight"
    assert torch.equal(first[name], again[name])
    assert torch.equal(first[name], wider[name])
    assert not torch.equal(first[name], other[name])
    assert not torch.equal(first[name], first[name.replace("blocks.1", "blocks.0")])
    assert first[name].abs().max() <= 8**-0.5


def stirred(adapter: LoraAdapter) -> dict[str, Tensor]:
    state = {
        name: value + 0.1 if "lora" in name or "dora" in name else value for name, value in adapter.state().items()
    }
    adapter.load(state)
    return state


def test_state_goes_there_and_back() -> None:
    state = stirred(attach(dora=True)[1])
    _, fresh, _ = attach(seed=9, dora=True)
    fresh.load(state)
    assert fresh.state().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in fresh.state().items())
    assert {value.dtype for value in state.values()} == {torch.float32}


def test_a_loaded_lora_keeps_its_strength_whatever_alpha_it_had() -> None:
    _, source, _ = attach(alpha=2)
    state = stirred(source)
    _, target, _ = attach(alpha=8)
    target.load(state)
    for name, delta in ((n, layer.delta()) for n, layer in source.layers.items()):
        torch.testing.assert_close(target.layers[name].delta(), delta)
    without = {name: value for name, value in state.items() if not name.endswith(".alpha")}
    target.load(without)  # without alpha, alpha is the rank
    name = next(iter(source.layers))
    torch.testing.assert_close(target.layers[name].delta(), 2 * source.layers[name].delta())


def test_a_state_of_other_layers_is_refused_with_names() -> None:
    state = attach()[1].state()
    with pytest.raises(UserError, match=r"lacks denoiser\.blocks\.0\.ff"):
        attach(targets="attention+mlp")[1].load(state)
    with pytest.raises(UserError, match=r"does not train: denoiser\.blocks\.0\.attn\.to_out"):
        attach(targets=["*.to_q"])[1].load(state)
    with pytest.raises(UserError, match=r"shapes differ: \[4, 8\].*\[2, 8\]"):
        attach(rank=2)[1].load(state)
    with pytest.raises(UserError, match="dora_scale"):
        attach(dora=True)[1].load(state)


def test_disabled_and_detached_networks_are_the_base() -> None:
    modules, adapter, _ = attach(targets=["*.ff"])
    block = modules["denoiser"].blocks[0]
    x = torch.randn(2, 8)
    base = block.ff(x)
    stirred(adapter)
    changed = block.ff(x)
    assert not torch.allclose(changed, base)
    with adapter.disabled():
        assert torch.equal(block.ff(x), base)
    assert torch.equal(block.ff(x), changed)
    adapter.detach()
    assert type(block.ff) is nn.Linear
    block.ff.weight.data = adapter.merged_weights()["denoiser.blocks.0.ff.weight"]
    torch.testing.assert_close(block.ff(x), changed)


def test_summary_counts_what_is_trained() -> None:
    _, adapter, trained = attach(alpha=2)
    facts = adapter.summary()
    assert facts["parameters"] == sum(item.parameter.numel() for item in trained)
    assert (facts["layers"], facts["rank"], facts["alpha"], facts["factor"]) == (4, 4, 2.0, 0.5)
