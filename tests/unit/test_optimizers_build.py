"""Groups, routing by role, optional packages and classes by import path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest
import torch
from torch import nn

from trainers.adapters._protocol import Trainable
from trainers.core import discover
from trainers.core.errors import UserError
from trainers.optimizers import adamw, custom, lion, muon, prodigy, schedule_free
from trainers.optimizers._extra import need
from trainers.optimizers._groups import make_groups
from trainers.optimizers._protocol import make_bundle


def weight(name: str, role: Any, shape: tuple[int, ...] = (8, 8), lr: float | None = None) -> Trainable:
    parameter = nn.Parameter(torch.ones(shape))
    parameter.grad = torch.ones(shape)
    return Trainable(name, name.partition(".")[0], parameter, role, lr)


def test_groups_by_role_and_rate_and_no_decay_of_vectors() -> None:
    items = [weight("denoiser.a", "matrix"), weight("denoiser.b", "vector", (8,)), weight("denoiser.c", "matrix")]
    items += [weight("text_encoder.a", "matrix", lr=1e-6)]
    groups = make_groups(items, 1e-4, 0.1)
    assert [(g.role, g.lr, g.weight_decay, g.names) for g in groups] == [
        ("matrix", 1e-4, 0.1, ("denoiser.a", "denoiser.c")),
        ("vector", 1e-4, 0.0, ("denoiser.b",)),
        ("matrix", 1e-6, 0.1, ("text_encoder.a",)),
    ]
    assert make_groups(items, 1e-4, 0.1, decay_vectors=True)[1].weight_decay == 0.1


def test_muon_takes_matrices_and_adamw_the_rest() -> None:
    items = [
        weight("d.m", "matrix"),
        weight("d.c", "conv", (4, 4, 3, 3)),
        weight("d.e", "embedding"),
        weight("d.i", "io"),
    ]
    items += [weight("text_encoder.m", "matrix", lr=1e-3), weight("text_encoder.b", "vector", (8,), lr=1e-3)]
    config = muon.Config(scale="original", lr=0.02, adam_lr=2e-4, weight_decay=0.05)
    bundle = make_bundle(config, items)
    first, second = bundle.optimizers
    assert [group["names"] for group in first.param_groups] == [["d.m"], ["text_encoder.m"]]
    assert [group["names"] for group in second.param_groups] == [["d.c"], ["d.e"], ["d.i"], ["text_encoder.b"]]
    assert [group["lr"] for group in first.param_groups] == [0.02, 1e-3]
    assert [group["lr"] for group in second.param_groups] == pytest.approx([2e-4, 2e-4, 2e-4, 1e-5])
    assert {group["weight_decay"] for group in first.param_groups} == {0.05}
    assert bundle.kind == "Muon + AdamW"


def test_muon_moves_as_far_as_adamw_by_default() -> None:
    torch.manual_seed(0)
    moved = []
    for config in (muon.Config(lr=1e-3, weight_decay=0), adamw.Config(lr=1e-3, weight_decay=0)):
        item = weight("d.m", "matrix", (256, 128))
        item.parameter.grad = torch.randn(256, 128)
        make_bundle(config, [item]).step()
        moved.append((item.parameter.detach() - 1).square().mean().sqrt().item())
    assert 0.1 < moved[0] / moved[1] < 0.4  # 0.2 by design: the usual size of an AdamW update well under way


def test_muon_without_matrices_and_original_without_adam_rate_are_refused() -> None:
    with pytest.raises(UserError, match="nothing to do"):
        make_bundle(muon.Config(), [weight("d.c", "conv", (4, 4, 3, 3))])
    with pytest.raises(pydantic.ValidationError, match="adam_lr"):
        muon.Config(scale="original")


def test_lion_follows_its_closed_form() -> None:
    item = weight("d.m", "matrix", (3,))
    bundle = make_bundle(lion.Config(lr=0.1, weight_decay=0.5), [item])
    w, m = torch.ones(3), torch.zeros(3)
    for gradient in (torch.tensor([1.0, -2.0, 0.0]), torch.tensor([-0.05, 1.0, 3.0])):
        item.parameter.grad = gradient.clone()
        bundle.step()
        w = w * (1 - 0.1 * 0.5) - 0.1 * torch.sign(0.9 * m + 0.1 * gradient)
        m = 0.99 * m + 0.01 * gradient
        torch.testing.assert_close(item.parameter.detach(), w)


def test_prodigy_finds_one_rate_per_part_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    items = [
        weight("denoiser.m", "matrix"),
        weight("denoiser.b", "vector", (8,)),
        weight("text_encoder.m", "matrix", lr=0.5),
    ]
    bundle = make_bundle(prodigy.Config(), items)
    assert [len(optimizer.param_groups) for optimizer in bundle.optimizers] == [2, 1]
    bundle.set_factor(0.0)
    bundle.step()
    bundle.set_factor(1.0)
    bundle.step()
    assert bundle.rates()["text_encoder/matrix/found"] == pytest.approx(0.5 * 1e-6)
    assert capsys.readouterr().out == ""


def test_schedule_free_shows_the_average_and_trains_on() -> None:
    item = weight("d.m", "matrix")
    bundle = make_bundle(schedule_free.Config(lr=0.1), [item])
    for _ in range(3):
        item.parameter.grad = torch.ones(8, 8)
        bundle.step()
    trained = item.parameter.detach().clone()
    with bundle.evaluation():
        assert not torch.equal(item.parameter, trained)
    assert torch.equal(item.parameter, trained)
    with pytest.raises(ZeroDivisionError), bundle.evaluation():
        _ = 1 / 0
    assert torch.equal(item.parameter, trained)
    bundle.step()


def test_settings_come_from_the_preset_and_memory_from_the_state() -> None:
    items = [weight("d.m", "matrix")]
    old = make_bundle(prodigy.Config(d0=1e-4), items)
    old.step()
    items[0].parameter.data.add_(1)
    items[0].parameter.grad = torch.ones(8, 8)
    old.step()
    new = make_bundle(prodigy.Config(d0=1e-4, weight_decay=0.2, lr=0.5), items)
    new.load_state_dict(old.state_dict())
    before, after = old.optimizers[0].param_groups[0], new.optimizers[0].param_groups[0]
    assert (after["k"], after["d"], after["d_numerator"]) == (before["k"], before["d"], before["d_numerator"])
    assert after["k"] > 0
    assert (after["lr"], after["weight_decay"]) == (0.5, 0.2)


def test_an_absent_package_is_named_with_its_extra() -> None:
    with pytest.raises(
        UserError, match=r'there needs the package no_such_thing[\s\S]*pip install "trainers\[prodigy\]"'
    ):
        need("no_such_thing", "prodigy", "there")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": "torch.optim.AdamW2"}, 'did you mean "torch.optim.AdamW"'),
        ({"path": "no_such_package.Adam"}, "cannot be imported"),
        ({"path": "torch.nn.Linear"}, "no optimizer class"),
        ({"path": "torch.optim.LBFGS"}, "several times per step"),
        ({"path": "torch.optim:SGD", "arguments": {"momentun": 0.9}}, "refuses its arguments.*momentun"),
    ],
)
def test_a_custom_class_that_does_not_fit_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_bundle(custom.Config(**settings), [weight("d.m", "matrix")])


def test_no_trainable_weight_and_a_double_one_are_refused() -> None:
    with pytest.raises(UserError, match="no trainable weight"):
        make_bundle(adamw.Config(), [])
    with pytest.raises(ValueError, match="more than one group"):
        make_bundle(adamw.Config(), [weight("d.m", "matrix"), weight("d.m", "vector")])


@pytest.mark.parametrize("package", ["trainers.optimizers", "trainers.adapters"])
def test_settings_are_read_without_torch(package: str, root: Path) -> None:
    names = [f"{package}.{name}" for name in discover.names(package)]
    code = (
        f"import sys, {', '.join(names)}; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
