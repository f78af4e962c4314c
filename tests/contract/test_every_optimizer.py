"""What every optimizer plug-in must do; plug-ins are found by place, so a new file is tested without a word here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainers.core import discover
from trainers.core.errors import UserError
from trainers.optimizers._facade import Bundle
from trainers.optimizers._protocol import make_bundle

KINDS = discover.names("trainers.optimizers")
SETTINGS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 0.03},
    "adamw8bit": {"lr": 0.03, "min_8bit_size": 64},
    "adafactor": {"lr": 0.03},
    "custom": {"path": "torch.optim.NAdam", "lr": 0.03},
    "lion": {"lr": 0.01},
    "muon": {"lr": 0.1},
    "prodigy": {"d0": 1e-3},
    "schedule_free": {"lr": 0.1},
}
SHAPES = {"matrix": (16, 24), "conv": (8, 4, 3, 3), "vector": (48,), "embedding": (12, 16), "io": (8, 16)}


@dataclass(frozen=True)
class Weight:
    name: str
    parameter: nn.Parameter
    role: str
    lr: float | None = None


def weights(seed: int = 0) -> list[Weight]:
    generator = torch.Generator().manual_seed(seed)
    return [
        Weight(f"denoiser.{role}.weight", nn.Parameter(torch.randn(shape, generator=generator)), role)
        for role, shape in SHAPES.items()
    ]


def make(kind: str, items: list[Weight]) -> Bundle:
    config = discover.load("trainers.optimizers", kind).Config(kind=kind, **SETTINGS.get(kind, {}))
    return make_bundle(config, items)


def loss_of(items: list[Weight]) -> Tensor:
    """A bowl around 0.5, each weight with a curvature of its own."""
    return torch.stack([(index + 1) * ((w.parameter - 0.5) ** 2).mean() for index, w in enumerate(items)]).sum()


def run(bundle: Bundle, items: list[Weight], first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        bundle.set_factor(min(1.0, (step + 1) / 3))
        loss = loss_of(items)
        loss.backward()
        bundle.step()
        bundle.zero_grad()
        losses.append(loss.item())
    return losses


def copy_state(value: Any) -> Any:
    """What a checkpoint does: every tensor is written and read again."""
    if isinstance(value, dict):
        return {key: copy_state(item) for key, item in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


@pytest.mark.parametrize("kind", KINDS)
def test_reduces_a_quadratic(kind: str) -> None:
    items = weights()
    bundle = make(kind, items)
    before = loss_of(items).item()
    run(bundle, items, 0, 40)
    with bundle.evaluation():
        assert loss_of(items).item() < 0.7 * before


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_is_used_once_and_moves(kind: str) -> None:
    items = weights()
    before = {item.name: item.parameter.detach().clone() for item in items}
    bundle = make(kind, items)
    assert sorted(bundle.names()) == sorted(before)
    run(bundle, items, 0, 3)
    assert [item.name for item in items if torch.equal(item.parameter, before[item.name])] == []


@pytest.mark.parametrize("kind", KINDS)
def test_c30_five_and_five_steps_equal_ten(kind: str) -> None:
    straight, split = weights(), weights()
    whole = run(make(kind, straight), straight, 0, 10)

    first = make(kind, split)
    losses = run(first, split, 0, 5)
    state = copy_state(first.state_dict())
    resumed = weights(seed=1)
    for old, new in zip(split, resumed, strict=True):
        new.parameter.data.copy_(old.parameter.data)
    second = make(kind, resumed)
    second.load_state_dict(state)
    losses += run(second, resumed, 5, 10)

    assert losses == whole
    for a, b in zip(straight, resumed, strict=True):
        assert torch.equal(a.parameter, b.parameter), a.name


@pytest.mark.parametrize("kind", KINDS)
def test_c30_state_survives_a_look_at_the_evaluation_weights(kind: str) -> None:
    plain, looked = weights(), weights()
    run(make(kind, plain), plain, 0, 6)
    bundle = make(kind, looked)
    run(bundle, looked, 0, 3)
    with bundle.evaluation():
        loss_of(looked)
    run(bundle, looked, 3, 6)
    assert all(torch.equal(a.parameter, b.parameter) for a, b in zip(plain, looked, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_the_state_of_another_optimizer(kind: str) -> None:
    other = "lion" if kind != "lion" else "adamw"
    items = weights()
    source = make(other, items)
    run(source, items, 0, 2)
    with pytest.raises(UserError, match=r"belongs to .* this run uses"):
        make(kind, items).load_state_dict(source.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_the_state_of_other_weights(kind: str) -> None:
    items = weights()
    source = make(kind, items)
    run(source, items, 0, 2)
    state = source.state_dict()
    renamed = [Weight(item.name.replace("conv", "konv"), item.parameter, item.role) for item in items]
    with pytest.raises(UserError, match=r"konv[\s\S]*denoiser\.conv"):
        make(kind, renamed).load_state_dict(state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parts_own_rate_and_the_factor_reach_the_weights(kind: str) -> None:
    items = weights()
    items += [
        Weight("text_encoder.matrix.weight", nn.Parameter(torch.randn(16, 24)), "matrix", 1e-5),
        Weight("text_encoder.bias", nn.Parameter(torch.randn(16)), "vector", 1e-5),
    ]
    bundle = make(kind, items)
    bundle.set_factor(0.5)
    rates = bundle.rates()
    assert rates["text_encoder/matrix"] == pytest.approx(0.5e-5)
    assert rates["denoiser/matrix"] > 0.5e-5
    bundle.set_factor(1.0)
    assert bundle.rates()["text_encoder/matrix"] == pytest.approx(1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_plain_data_and_tensors(kind: str) -> None:
    items = weights()
    bundle = make(kind, items)
    run(bundle, items, 0, 2)
    places: set[int] = set()

    def check(value: Any, where: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                assert isinstance(key, (str, int)), where
                check(item, f"{where}.{key}")
        elif isinstance(value, Tensor):
            assert not value.requires_grad
            assert value.untyped_storage().data_ptr() not in places, f"{where} shares its memory"
            places.add(value.untyped_storage().data_ptr())
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                check(item, f"{where}[{index}]")
        else:
            assert value is None or isinstance(value, (str, int, float, bool)), where

    check(bundle.state_dict(), kind)
