"""Single operations on the card: device choice, fused AdamW, keyed dropout masks, attention kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainers.adapters._dropout import dropped, keyed_dropout, layer_words
from trainers.adapters._protocol import Trainable
from trainers.checkpoint.tensors import read_state, write_state
from trainers.memory.device import DTYPES, Device, choose, has_fast_bf16
from trainers.optimizers._facade import Bundle
from trainers.optimizers._protocol import make_bundle
from trainers.optimizers.adamw import Config

Record = Callable[[str, object], None]
KERNELS = [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]


def test_the_card_is_chosen_and_computes(place: str, record_property: Record) -> None:
    chosen = choose(place)
    record_property("card", chosen.title())
    record_property("torch", torch.__version__)
    record_property("notes", list(chosen.notes))
    record_property("total_bytes", chosen.memory()[1])
    if chosen.kind == "cuda":
        assert chosen.precision == ("bf16" if has_fast_bf16("cuda") else "fp16")
    for precision in DTYPES:
        record_property(precision, choose(place, precision).precision)


def weights(device: torch.device) -> list[nn.Parameter]:
    draws = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(shape, generator=draws).to(device)) for shape in ((64, 32), (32,), (8, 4, 3, 3))]


def bundle_of(parameters: list[nn.Parameter]) -> Bundle:
    names = [f"denoiser.{index}" for index in range(len(parameters))]
    trained = [
        Trainable(name, "denoiser", parameter, "matrix" if parameter.ndim > 1 else "vector", None)
        for name, parameter in zip(names, parameters, strict=True)
    ]
    return make_bundle(Config(lr=1e-2), trained)


def step(bundle: Bundle, parameters: list[nn.Parameter], number: int) -> None:
    """One update with gradients that depend on the number only."""
    draws = torch.Generator().manual_seed(number)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=draws).to(parameter.device)
    bundle.step()


def test_the_state_of_fused_adamw_comes_back(card: Device, tmp_path: Path) -> None:
    straight, split = weights(card.device), weights(card.device)
    one, other = bundle_of(straight), bundle_of(split)
    assert all(group["fused"] for optimizer in one.optimizers for group in optimizer.param_groups)
    for number in range(6):
        step(one, straight, number)
    for number in range(3):
        step(other, split, number)
    write_state(tmp_path, "optimizer", other.state_dict())
    again = bundle_of(split)
    again.load_state_dict(read_state(tmp_path, "optimizer"))
    for number in range(3, 6):
        step(again, split, number)
    assert all(torch.equal(a, b) for a, b in zip(straight, split, strict=True))
    moments = [
        value for optimizer in again.optimizers for state in optimizer.state.values() for value in state.values()
    ]
    assert {value.device.type for value in moments if value.ndim} == {card.kind}


def test_fused_adamw_is_the_cpus(card: Device, record_property: Record) -> None:
    here, there = weights(card.device), weights(torch.device("cpu"))
    bundles = bundle_of(here), bundle_of(there)
    for number in range(20):
        step(bundles[0], here, number)
        step(bundles[1], there, number)
    difference = max(float((a.detach().cpu() - b.detach()).abs().max()) for a, b in zip(here, there, strict=True))
    record_property("largest_difference", difference)
    assert difference < 1e-5


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_masks_are_the_cpus(card: Device, share: float) -> None:
    words = layer_words([7, -1, 2**63 - 1], 40)
    for layer in (0, 39):
        assert torch.equal(
            dropped(words[layer].to(card.device), 100_001, share).cpu(), dropped(words[layer], 100_001, share)
        )
    x = torch.ones(6, 50, 30)
    assert torch.equal(keyed_dropout(x.to(card.device), words[0], share).cpu(), keyed_dropout(x, words[0], share))


def attention(kernel: SDPBackend, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Result and gradient of the queries, float32 on the CPU; like a U-Net's: 8 heads, 256 places, 77 words."""
    draws = torch.Generator().manual_seed(5)
    queries, keys, values = (
        torch.randn(2, 8, length, 64, generator=draws).to(device, dtype).requires_grad_() for length in (256, 77, 77)
    )
    with sdpa_kernel([kernel]):
        result = functional.scaled_dot_product_attention(queries, keys, values)
        result.float().square().sum().backward()
    gradient = queries.grad
    assert gradient is not None
    return result.detach().float().cpu(), gradient.float().cpu()


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says why a kernel cannot be used
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_attention_kernel_is_neutral(
    card: Device, kernel: SDPBackend, precision: str, record_property: Record
) -> None:
    wanted = attention(SDPBackend.MATH, torch.device("cpu"), torch.float32)
    got = None
    try:
        got = attention(kernel, card.device, DTYPES[precision])
    except RuntimeError as error:
        record_property("not_here", str(error).splitlines()[0])
    if got is None:
        assert kernel is not SDPBackend.MATH
        return
    apart = [float((a - b).norm() / b.norm()) for a, b in zip(got, wanted, strict=True)]
    record_property("relative_differences", apart)
    assert max(apart) < {"fp32": 2e-3, "fp16": 5e-3, "bf16": 3e-2}[precision]
