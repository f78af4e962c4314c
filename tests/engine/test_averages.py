"""Averages, and the weights that are shown: swapped in and back bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.tiny import Workbench, apart
from trainers.adapters._protocol import Trainable
from trainers.core.position import Position
from trainers.engine.averages import Averages
from trainers.engine.state import TrainState
from trainers.optimizers import schedule_free
from trainers.optimizers._protocol import make_bundle


def weights() -> list[Trainable]:
    generator = torch.Generator().manual_seed(1)
    return [
        Trainable(f"denoiser.{n}", "denoiser", nn.Parameter(torch.randn(5, 3, generator=generator)), "matrix", None)
        for n in range(2)
    ]


def test_the_average_is_what_the_formula_says() -> None:
    items = weights()[:1]
    averages = Averages(items, 0.9)
    expected = items[0].parameter.detach().clone().double()
    for step in range(1, 40):
        items[0].parameter.data += 0.1
        averages.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * items[0].parameter.detach().double()
    torch.testing.assert_close(averages.state()["denoiser.0"].double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_shown_is_swapped_in_and_back_exactly(fails: bool) -> None:
    items = weights()
    optimizer = make_bundle(schedule_free.Config(kind="schedule_free", lr=0.1), items)
    averages = Averages(items, 0.5)
    state = TrainState(None, items, optimizer, averages, None, Position())
    for step in range(1, 5):
        for item in items:
            item.parameter.grad = torch.sin(item.parameter.detach() * step)
        optimizer.step()
        averages.update(step)
    before = {item.name: item.parameter.detach().clone() for item in items}
    mean = {name: value.clone() for name, value in averages.state().items()}
    with pytest.raises(RuntimeError) if fails else torch.no_grad(), state.evaluation_weights():
        for item in items:
            assert torch.equal(item.parameter, mean[item.name])
            assert not torch.equal(item.parameter, before[item.name])
        if fails:
            raise RuntimeError("a preview broke")
    for item in items:
        assert torch.equal(item.parameter, before[item.name])
        assert torch.equal(averages.state()[item.name], mean[item.name])
    assert optimizer.optimizers[0].param_groups[0]["train_mode"]


def test_schedule_free_shows_other_weights_than_it_trains() -> None:
    items = weights()
    optimizer = make_bundle(schedule_free.Config(kind="schedule_free", lr=0.1), items)
    state = TrainState(None, items, optimizer, None, None, Position())
    for _ in range(3):
        for item in items:
            item.parameter.grad = torch.ones(5, 3)
        optimizer.step()
    before = items[0].parameter.detach().clone()
    with state.evaluation_weights():
        assert not torch.equal(items[0].parameter, before)
    assert torch.equal(items[0].parameter, before)


def test_exports_hold_the_averages_where_there_are_some(bench: Workbench) -> None:
    from safetensors.torch import load_file

    run = bench.run({"ema": {"enabled": True, "decay": 0.99}, "export": {"layouts": ["diffusers"]}})
    exported = load_file(run.folder / "exports" / "run-diffusers.safetensors")
    ups = [value for name, value in exported.items() if "lora_B" in name or "lora.up" in name]
    mean = [value for name, value in run.saved(6, "averages").items() if name.endswith("lora_B.weight")]
    live = [value for name, value in run.weights(6).items() if name.endswith("lora_B.weight")]

    def total(tensors: list[torch.Tensor]) -> float:
        return float(sum(tensor.double().abs().sum() for tensor in tensors))

    assert total(ups) == pytest.approx(total(mean), rel=1e-6)
    assert abs(total(ups) / total(live) - 1) > 0.01
    assert apart(run.saved(6, "averages"), run.weights(6)) > 1e-4
