"""How much memory a run takes: arithmetic on facts, free of torch. Bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainers.core.facts import Facts

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_MEASURED_BYTES = 2  # facts state activations in bf16
_RESERVE = 300 << 20


@dataclass(frozen=True)
class Estimate:
    """Bytes by item, for the training stage. `known` is False where the family's counts have not been published."""

    items: tuple[tuple[str, int], ...]
    known: bool

    @property
    def total(self) -> int:
        """The sum of all items."""
        return sum(size for _, size in self.items)


def estimate(facts: Facts, train: Any, compute: Any, micro_batch: int, bucket: tuple[int, int]) -> Estimate:
    """Estimate the training stage from published parameter counts; text encoders and VAE have stages of their own."""
    parts = [part for part in train.parts if part in facts.parameters]
    if not facts.parameters or "denoiser" not in facts.parameters:
        return Estimate((), known=False)
    precision = "fp32" if compute.precision == "auto" else compute.precision
    full = train.kind == "full"
    loaded = {"denoiser", *parts}
    frozen = sum(facts.parameters[part] for part in loaded) * (4 if full else _BYTES[precision])
    trained = sum(facts.parameters[part] for part in parts) if full else _lora_size(facts, train)
    tokens = (bucket[0] // facts.stride_xy) * (bucket[1] // facts.stride_xy) * micro_batch
    activations = int(
        tokens
        * facts.bytes_per_token.get("checkpointed" if compute.gradient_checkpointing is True else "plain", 0.0)
        * _BYTES[precision]
        / _MEASURED_BYTES
    )
    items = [
        ("weights", frozen),
        ("trained weights" if not full else "trained weights (in weights)", 0 if full else trained * 4),
    ]
    items += [
        ("gradients", trained * 4),
        ("optimizer", trained * 8),
        ("activations", activations),
        ("reserve", _RESERVE),
    ]
    return Estimate(tuple((name, size) for name, size in items if size), known=bool(activations))


def _lora_size(facts: Facts, train: Any) -> int:
    """About 0.03 % of the network per unit of rank: what rank times the widths of its attention layers comes to."""
    return int(sum(facts.parameters.get(part, 0) for part in train.parts) * 0.0003 * train.rank)
