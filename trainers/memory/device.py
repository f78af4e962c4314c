"""Where a run computes and in which precision: chosen here and nowhere else.

What a device lacks is named and replaced before the start, so that a preset made for one machine runs on another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from trainers.core.errors import UserError, nearest
from trainers.memory import preflight

KINDS = ("cuda", "xpu", "mps", "cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Device:
    """One place to compute. `precision` is fp32, bf16 or fp16 of the forward pass; `notes` say what was replaced."""

    device: torch.device
    precision: str
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """cuda (also ROCm), xpu, mps or cpu."""
        return self.device.type

    @property
    def dtype(self) -> torch.dtype:
        """The type of the forward pass."""
        return DTYPES[self.precision]

    @property
    def needs_scaler(self) -> bool:
        """fp16 gradients underflow without loss scaling. Micikevicius et al. 2018."""
        return self.precision == "fp16"

    def autocast(self) -> Any:
        """The context of a forward pass; nothing at all in fp32."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.kind, dtype=self.dtype)

    def title(self) -> str:
        """The device as people know it."""
        return title_of(self.device)

    def memory(self) -> tuple[int, int]:
        """Bytes (free, total) of the device; of the machine's RAM where it shares that (CPU, Metal)."""
        if self.kind in ("cuda", "xpu"):
            free, total = torch.get_device_module(self.device).mem_get_info(self.device)
            return int(free), int(total)
        import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total


def title_of(device: torch.device) -> str:
    """A device as people know it."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        capability = "" if torch.version.hip else f" (compute capability {major}.{minor})"
        return f"{torch.cuda.get_device_name(device)}{capability}"
    if device.type == "xpu":
        return str(torch.xpu.get_device_name(device))
    return {"cpu": "CPU", "mps": "Apple GPU (Metal)"}.get(device.type, str(device))


def available(kind: str) -> bool:
    """Tell whether torch can compute on this kind of device here."""
    if kind == "cuda":
        return torch.cuda.is_available()
    if kind == "xpu":
        return hasattr(torch, "xpu") and torch.xpu.is_available()
    if kind == "mps":
        return torch.backends.mps.is_available()
    return kind == "cpu"


def has_fast_bf16(kind: str, index: int = 0) -> bool:
    """bf16 by capability: CUDA compute capability 8.0 and up, every XPU, a CPU with bf16 instructions, newer Metal."""
    if kind == "cuda":
        if torch.version.hip is not None:
            return torch.cuda.is_bf16_supported()
        return torch.cuda.get_device_capability(index) >= (8, 0)
    if kind == "cpu":
        return torch.backends.mkldnn.is_available() and bool(_cpu_has_bf16())
    return kind == "xpu"


def _cpu_has_bf16() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def choose(wanted: str = "auto", precision: str = "auto", *, rank: int = 0) -> Device:
    """Choose device and precision. `wanted` is "auto", a kind, or "cuda:1"; a rank takes the card of its number.

    Raises UserError for what is not here, and for a device on which no kernel runs.
    """
    kind, _, index = wanted.partition(":")
    if kind == "auto":
        kind = next(name for name in KINDS if available(name))
    if kind not in KINDS:
        hint = nearest(kind, KINDS)
        raise UserError(
            f'"{wanted}" is no device',
            where="compute.device",
            remedy=f'use "auto" or {hint or "one of cuda, xpu, mps, cpu"}',
        )
    if not available(kind):
        here = [name for name in KINDS if available(name)]
        raise UserError(
            f'no "{kind}" device can be used here', where="compute.device",
            remedy=f'use "auto"; available: {", ".join(here)}; `trainers doctor` says why',
        )  # fmt: skip
    if kind not in ("cuda", "xpu"):
        return _tried(torch.device(kind), precision)
    cards = torch.get_device_module(kind).device_count()
    number = rank if not index else int(index) if index.isdecimal() else -1
    if not 0 <= number < cards:
        raise UserError(
            f'there is no card "{kind}:{index or rank}"', where="compute.device",
            remedy=f"there are {cards}, counted from 0",
        )  # fmt: skip
    return _tried(torch.device(kind, number), precision)


def _tried(device: torch.device, wanted: str) -> Device:
    """The device after its first kernel, in a precision in which it computes."""
    preflight.require(device, title_of(device))
    precision, notes = _precision(device.type, device.index or 0, wanted)
    if precision != "fp32" and preflight.failure(device, DTYPES[precision]) is not None:
        return Device(device, "fp32", (*notes, f"{title_of(device)} does not compute in {precision}: fp32 is used"))
    return Device(device, precision, notes)


def _precision(kind: str, index: int, wanted: str) -> tuple[str, tuple[str, ...]]:
    """Pick the precision of the forward pass and say what was replaced."""
    fast_bf16 = has_fast_bf16(kind, index)
    if wanted == "auto":
        if kind == "cpu":
            return "fp32", ()
        if kind == "mps":
            return "fp32", ()
        return ("bf16", ()) if fast_bf16 else ("fp16", ("this card has no bf16: fp16 with loss scaling is used",))
    if wanted == "bf16" and kind == "cuda" and not fast_bf16:
        return "fp16", ("this card has no bf16: fp16 with loss scaling is used instead of bf16",)
    if wanted == "bf16" and kind == "cpu" and not fast_bf16:
        return "bf16", ("this processor has no bf16 instructions: bf16 works but saves no time",)
    return wanted, ()


def limit_memory(device: Device, limit: int) -> None:
    """Keep this process within `limit` bytes of an accelerator; on a CPU there is nothing to set."""
    if device.kind in ("cuda", "xpu"):
        total = device.memory()[1]
        torch.get_device_module(device.device).set_per_process_memory_fraction(min(1.0, limit / total), device.device)
    elif device.kind == "mps":
        torch.mps.set_per_process_memory_fraction(min(1.0, limit / torch.mps.recommended_max_memory()))


@contextmanager
def evaluating(*modules: torch.nn.Module) -> Iterator[None]:
    """No gradients and eval mode for a while; the mode of each module is restored exactly."""
    modes = [(module, module.training) for root in modules for module in root.modules()]
    for root in modules:
        root.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
