"""Cards that are not here: what torch would answer on a T4, a P100, an RTX 3060, an AMD, Intel or Apple GPU."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from trainers.memory import preflight

GIB = 1024**3


@dataclass(frozen=True)
class Card:
    """One kind of card. `refuses` maps a precision (torch's name) to what its first kernel answers."""

    kind: str
    name: str
    capability: tuple[int, int] = (0, 0)
    memory: int = 16 * GIB
    count: int = 1
    hip: str | None = None
    refuses: tuple[tuple[str, Exception], ...] = ()


NO_CODE = torch.AcceleratorError(
    "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be reported late"
)
T4 = Card("cuda", "Tesla T4", (7, 5))
RTX_3060 = Card("cuda", "NVIDIA GeForce RTX 3060", (8, 6), 12 * GIB)
P100 = Card("cuda", "Tesla P100-PCIE-16GB", (6, 0), refuses=(("float32", NO_CODE),))
RADEON = Card("cuda", "AMD Radeon RX 7900 XTX", (11, 0), 24 * GIB, hip="7.2.1")
ARC = Card("xpu", "Intel(R) Arc(TM) A770 Graphics")
APPLE = Card("mps", "Apple GPU (Metal)")
OLD_APPLE = Card("mps", "Apple GPU (Metal)", refuses=(("bfloat16", TypeError("BFloat16 is not supported on MPS")),))


def plug_in(card: Card, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Let torch answer as with this card alone beside the CPU; returns the kernels that are tried, as they come."""
    tried: list[tuple[str, str]] = []
    for kind, module in (("cuda", torch.cuda), ("xpu", torch.xpu)):
        monkeypatch.setattr(module, "is_available", lambda kind=kind: card.kind == kind)
        monkeypatch.setattr(module, "device_count", lambda kind=kind: card.count if card.kind == kind else 0)
        monkeypatch.setattr(module, "get_device_name", lambda device=None: card.name)
        monkeypatch.setattr(module, "mem_get_info", lambda device=None: (card.memory - GIB, card.memory))
        monkeypatch.setattr(module, "get_device_capability", lambda device=None: card.capability)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: card.kind == "mps")
    monkeypatch.setattr(torch.version, "hip", card.hip)

    def product(device: torch.device, dtype: torch.dtype) -> float:
        name = str(dtype).removeprefix("torch.")
        tried.append((str(device), name))
        refusal = dict(card.refuses).get(name) if device.type == card.kind else None
        if refusal is not None:
            raise refusal
        return 512.0

    monkeypatch.setattr(preflight, "product", product)
    return tried
