"""Device and precision on cards that are not here: what is chosen, what is replaced and said, what stops the start."""

from __future__ import annotations

import pytest
import torch

from tests import fake_devices as cards
from tests.fake_devices import Card, plug_in
from trainers.core.errors import UserError
from trainers.memory import device as devices
from trainers.memory.device import Device, choose, limit_memory

SCALED = "this card has no bf16: fp16 with loss scaling is used"
CARDS = {
    "T4": (cards.T4, "cuda:0", "fp16", (SCALED,)),
    "RTX 3060": (cards.RTX_3060, "cuda:0", "bf16", ()),
    "Radeon": (cards.RADEON, "cuda:0", "bf16", ()),
    "Arc": (cards.ARC, "xpu:0", "bf16", ()),
    "Apple": (cards.APPLE, "mps", "fp32", ()),
}


@pytest.mark.parametrize("name", CARDS)
def test_auto_takes_the_card_and_the_precision_it_is_good_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    card, place, precision, notes = CARDS[name]
    tried = plug_in(card, monkeypatch)
    chosen = choose()
    assert (str(chosen.device), chosen.precision, chosen.notes) == (place, precision, notes)
    assert chosen.needs_scaler is (precision == "fp16")
    assert tried[0] == (place, "float32")
    assert len(tried) == (1 if precision == "fp32" else 2)


@pytest.mark.parametrize(
    ("card", "wanted", "precision", "word"),
    [
        (cards.T4, "bf16", "fp16", "instead of bf16"),
        (cards.T4, "fp16", "fp16", ""),
        (cards.T4, "fp32", "fp32", ""),
        (cards.RTX_3060, "fp16", "fp16", ""),
        (cards.APPLE, "bf16", "bf16", ""),
        (cards.OLD_APPLE, "bf16", "fp32", "does not compute in bf16: fp32 is used"),
    ],
)
def test_a_precision_that_the_card_lacks_is_replaced_and_named(
    card: Card, wanted: str, precision: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(card, monkeypatch)
    chosen = choose("auto", wanted)
    assert chosen.precision == precision
    assert bool(chosen.notes) is bool(word)
    assert word in "".join(chosen.notes)


def test_a_card_for_which_torch_holds_no_code_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(cards.P100, monkeypatch)
    with pytest.raises(UserError) as error:
        choose()
    said = str(error.value)
    assert "holds no code for Tesla P100-PCIE-16GB (compute capability 6.0)" in said
    assert torch.__version__ in said
    assert "whl/cu126" in said
    assert 'compute.device = "cpu"' in said
    assert choose("cpu").kind == "cpu"


def test_an_amd_card_without_code_gets_its_own_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = RuntimeError("HIP error: invalid device function")
    plug_in(Card("cuda", "AMD Radeon Graphics", (10, 3), hip="7.2", refuses=(("float32", refusal),)), monkeypatch)
    with pytest.raises(UserError, match="HSA_OVERRIDE_GFX_VERSION"):
        choose()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB"), "memory of Tesla T4"),
        (RuntimeError("CUDA driver version is insufficient for CUDA runtime version"), "update the driver"),
        (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), "another program"),
        (AssertionError("Torch not compiled with CUDA enabled"), "cannot compute: Torch not compiled"),
        (RuntimeError(""), "cannot compute: RuntimeError"),
    ],
)
def test_every_failure_of_the_first_kernel_is_put_into_words(
    answer: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(Card("cuda", "Tesla T4", (7, 5), refuses=(("float32", answer),)), monkeypatch)
    with pytest.raises(UserError, match=words) as error:
        choose()
    assert error.value.__cause__ is answer


def test_a_kernel_that_gives_a_wrong_result_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(cards.T4, monkeypatch)
    monkeypatch.setattr(devices.preflight, "product", lambda device, dtype: float("nan"))
    with pytest.raises(UserError, match="gave nan instead of 512"):
        choose()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_real_kernel_runs_here(precision: str) -> None:
    assert devices.preflight.failure(torch.device("cpu"), devices.DTYPES[precision]) is None


def test_ranks_and_numbers_choose_among_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(Card("cuda", "NVIDIA A100", (8, 0), count=2), monkeypatch)
    assert str(choose(rank=1).device) == "cuda:1"
    assert str(choose("cuda:1").device) == "cuda:1"
    assert str(choose("cpu", rank=5).device) == "cpu"
    for wanted, rank in (("cuda:2", 0), ("cuda:x", 0), ("cuda:-1", 0), ("cuda", 2)):
        with pytest.raises(UserError, match="there are 2, counted from 0"):
            choose(wanted, rank=rank)


def test_what_is_not_here_is_named_with_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(cards.ARC, monkeypatch)
    with pytest.raises(UserError, match="available: xpu, cpu"):
        choose("cuda")
    with pytest.raises(UserError, match='"cudaa" is no device'):
        choose("cudaa")


@pytest.mark.parametrize("name", CARDS)
def test_titles_and_memory_are_the_cards_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    card = CARDS[name][0]
    plug_in(card, monkeypatch)
    chosen = choose()
    assert chosen.title().startswith(card.name)
    free, total = chosen.memory()
    assert 0 < free <= total
    if card.kind != "mps":
        assert (free, total) == (card.memory - cards.GIB, card.memory)


def test_a_memory_limit_is_a_share_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    set_shares: list[tuple[float, str]] = []

    def record(share: float, device: object = "mps") -> None:
        set_shares.append((share, str(device)))

    for module in (torch.cuda, torch.xpu, torch.mps):
        monkeypatch.setattr(module, "set_per_process_memory_fraction", record)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 8 * cards.GIB)
    plug_in(cards.RTX_3060, monkeypatch)
    limit_memory(choose(), 6 * cards.GIB)
    limit_memory(choose(), 24 * cards.GIB)
    plug_in(cards.ARC, monkeypatch)
    limit_memory(choose(), 4 * cards.GIB)
    plug_in(cards.APPLE, monkeypatch)
    limit_memory(choose(), 2 * cards.GIB)
    limit_memory(Device(torch.device("cpu"), "fp32"), cards.GIB)
    assert set_shares == [(0.5, "cuda:0"), (1.0, "cuda:0"), (0.25, "xpu:0"), (0.25, "mps")]


@pytest.mark.parametrize(("flags", "fast"), [("fma avx2", False), ("avx512_bf16", True), ("amx_bf16 amx_tile", True)])
def test_a_processor_says_whether_bf16_saves_time(flags: str, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cpu_has_bf16", lambda: "bf16" in flags)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert devices.has_fast_bf16("cpu") is fast
    assert choose("cpu").precision == "fp32"
    chosen = choose("cpu", "bf16")
    assert chosen.precision == "bf16"
    assert bool(chosen.notes) is not fast


def test_only_half_precision_is_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    with Device(torch.device("cpu"), "fp32").autocast():
        assert not torch.is_autocast_enabled("cpu")
    with Device(torch.device("cpu"), "bf16").autocast():
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert torch.is_autocast_enabled("cpu")
