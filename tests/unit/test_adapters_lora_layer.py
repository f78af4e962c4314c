"""Our LoRA layer computes what PEFT's computes, and its dropout is a function of its keys alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainers.adapters import lora
from trainers.adapters._dropout import dropped, keyed_dropout, layer_words
from trainers.adapters._lora import LoraAdapter
from trainers.adapters._protocol import draw_keys
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
)
LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(12, 10), (3, 5, 12)),
    "linear without bias": (lambda: nn.Linear(12, 10, bias=False), (3, 12)),
    "conv": (lambda: nn.Conv2d(6, 10, 3, stride=2, padding=1), (3, 6, 9, 7)),
    "conv 1x1": (lambda: nn.Conv2d(6, 10, 1), (3, 6, 4, 4)),
    "conv in time": (lambda: nn.Conv3d(4, 6, 3, padding=1), (2, 4, 3, 4, 4)),
}


class Toy(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class SameMask(nn.Module):
    """Stands in for PEFT's dropout, so that both layers hide the same numbers."""

    def __init__(self, words: Tensor, share: float) -> None:
        super().__init__()
        self.words, self.share = words, share

    def forward(self, x: Tensor) -> Tensor:
        return keyed_dropout(x, self.words, self.share)


def build(layer: nn.Module, **settings: Any) -> tuple[Toy, LoraAdapter]:
    model = Toy(layer)
    wide = layer.weight.ndim > 2 and layer.weight.shape[-1] > 1
    config = lora.Config(
        rank=4,
        alpha=2,
        conv_rank=4 if wide else None,
        targets=["layer"],
        **settings,
    )
    adapter = lora.build(config, seed=3)
    assert isinstance(adapter, LoraAdapter)
    adapter.attach({"denoiser": model}, FACTS)
    return model, adapter


def stir(adapter: LoraAdapter) -> None:
    """Move every trained weight away from its start."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for layer in adapter.layers.values():
            layer.lora_B.copy_(torch.randn(layer.lora_B.shape, generator=generator) * 0.3)
            if layer.dora_scale is not None:
                layer.dora_scale.mul_(1.0 + 0.2 * torch.rand(layer.dora_scale.shape, generator=generator))


def peft_twin(model: Toy, adapter: LoraAdapter, make: Any, dora: bool, dropout: float) -> nn.Module:
    base = make()
    base.load_state_dict(model.layer.base_layer.state_dict())
    twin = Toy(base.to(model.layer.base_layer.weight.dtype))
    config = LoraConfig(r=4, lora_alpha=2, target_modules=["layer"], use_dora=dora, lora_dropout=dropout)
    twin = inject_adapter_in_model(config, twin)
    ours = adapter.layers["denoiser.layer"]
    with torch.no_grad():
        theirs = twin.layer
        theirs.lora_A["default"].weight.data = ours.lora_A.detach().clone()
        theirs.lora_B["default"].weight.data = ours.lora_B.detach().clone()
        if dora:
            magnitude = theirs.lora_magnitude_vector["default"].weight
            magnitude.data = ours.dora_scale.detach().clone().view(magnitude.shape)
    return twin


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("kind", LAYERS)
def test_outputs_and_gradients_equal_pefts(kind: str, dora: bool, dropout: float) -> None:
    make, shape = LAYERS[kind]
    torch.manual_seed(0)
    model, adapter = build(make(), dora=dora, dropout=dropout)
    stir(adapter)
    twin = peft_twin(model, adapter, make, dora, dropout)
    keys = draw_keys(1, 0, [str(i) for i in range(shape[0])])
    adapter.set_draw(keys)
    if dropout:
        twin.layer.lora_dropout["default"] = SameMask(layer_words(keys, 1)[0], dropout)
    x = torch.randn(shape)
    ours, theirs = model(x), twin(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)

    (ours**2).sum().backward()
    (theirs**2).sum().backward()
    layer = adapter.layers["denoiser.layer"]
    pairs = [
        (layer.lora_A.grad, twin.layer.lora_A["default"].weight.grad),
        (layer.lora_B.grad, twin.layer.lora_B["default"].weight.grad),
    ]
    if dora:
        pairs.append((layer.dora_scale.grad, twin.layer.lora_magnitude_vector["default"].weight.grad.flatten()))
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_half_precision_base_keeps_float32_trainables(kind: str, autocast: bool, dora: bool) -> None:
    make, shape = LAYERS[kind]
    torch.manual_seed(0)
    model, adapter = build(make().bfloat16(), dora=dora)
    stir(adapter)
    twin = peft_twin(model, adapter, make, dora, 0.0)
    x = torch.randn(shape, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ours, theirs = model(x), twin(x)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=0.03, atol=0.03)
    ours.float().sum().backward()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(trained) == (3 if dora else 2)
    assert {parameter.dtype for parameter in trained} == {torch.float32}
    assert {parameter.grad.dtype for parameter in trained} == {torch.float32}
    assert model.layer.base_layer.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_start_changes_nothing_and_merging_changes_nothing(kind: str, dora: bool) -> None:
    make, shape = LAYERS[kind]
    model, adapter = build(make(), dora=dora)
    base = model.layer.base_layer
    x = torch.randn(shape)
    torch.testing.assert_close(model(x), base(x), rtol=1e-6, atol=1e-6)
    stir(adapter)
    layer = adapter.layers["denoiser.layer"]
    product = torch.einsum("or,ri->oi", layer.lora_B.flatten(1), layer.lora_A.flatten(1)).view(base.weight.shape)
    torch.testing.assert_close(layer.delta(), 0.5 * product, rtol=0, atol=1e-6)
    merged = adapter.merged_weights()["denoiser.layer.weight"]
    if not dora:
        torch.testing.assert_close(merged - base.weight, 0.5 * product, rtol=0, atol=1e-5)
    live = model(x)
    plain = make()
    plain.load_state_dict({**base.state_dict(), "weight": merged})
    torch.testing.assert_close(plain(x), live, rtol=1e-5, atol=1e-5)


def test_dropout_hides_its_share_evenly_and_independently() -> None:
    words = layer_words(draw_keys(5, 9, ["a", "b"]), 2)
    count = 200_000
    masks = torch.stack([dropped(words[layer], count, 0.3) for layer in range(2)]).flatten(0, 1).double()
    assert masks.mean(1).sub(0.3).abs().max() < 0.005
    assert (torch.corrcoef(masks) - torch.eye(4)).abs().max() < 0.01
    for lag in (1, 2, 64, 320, 4096):
        lagged = torch.corrcoef(torch.stack([masks[0, :-lag], masks[0, lag:]]))[0, 1]
        assert abs(lagged) < 0.01, lag
    kept = keyed_dropout(torch.ones(2, count), words[0], 0.3)
    assert kept.mean().sub(1).abs() < 0.01
    assert keyed_dropout(torch.ones(2, 5), words[0], 0.0).eq(1).all()


def test_dropout_does_not_depend_on_the_micro_batch_nor_on_global_generators() -> None:
    model, adapter = build(nn.Linear(12, 10), dropout=0.5)
    stir(adapter)
    x, ids = torch.randn(4, 5, 12), ["a", "b", "c", "d"]
    adapter.set_draw(draw_keys(1, 3, ids))
    state = torch.random.get_rng_state()
    whole = model(x)
    assert torch.equal(state, torch.random.get_rng_state())
    split = []
    for part in (slice(0, 1), slice(1, 4)):
        adapter.set_draw(draw_keys(1, 3, ids[part]))
        split.append(model(x[part]))
    assert torch.equal(torch.cat(split), whole) or torch.allclose(torch.cat(split), whole, atol=1e-6)
    adapter.set_draw(draw_keys(1, 4, ids))
    assert not torch.allclose(model(x), whole)
    model.eval()
    evaluated = model(x)
    adapter.set_draw(draw_keys(1, 5, ids))
    assert torch.equal(model(x), evaluated)


def test_dropout_is_the_same_when_checkpointing_computes_again() -> None:
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(0)
        model, adapter = build(nn.Linear(12, 10), dropout=0.5)
        stir(adapter)
        adapter.set_draw(draw_keys(1, 3, ["a", "b"]))
        x = torch.randn(2, 5, 12)
        out = checkpoint(model, x, use_reentrant=False) if recompute else model(x)
        (out**2).sum().backward()
        gradients.append(adapter.layers["denoiser.layer"].lora_A.grad)
    assert torch.equal(*gradients)


def test_dropout_works_where_the_first_axis_is_not_the_sample() -> None:
    words = layer_words(draw_keys(1, 0, ["a", "b"]), 1)[0]
    x = torch.ones(2, 6, 4)
    unfolded = keyed_dropout(x.view(12, 4), words, 0.5)
    assert torch.equal(unfolded.view(2, 6, 4), keyed_dropout(x, words, 0.5))
    assert keyed_dropout(torch.ones(3, 400), words, 0.5).eq(0).any()


def test_training_with_dropout_and_without_keys_is_refused() -> None:
    model, _ = build(nn.Linear(12, 10), dropout=0.5)
    with pytest.raises(RuntimeError, match="set_draw"):
        model(torch.randn(1, 12))
