"""torch's AdamW as this suite uses it."""

from __future__ import annotations

from collections.abc import Sequence

from torch.optim import AdamW

from ._groups import Group

_FUSED = {"cpu", "cuda", "xpu", "mps"}


def make_adamw(groups: Sequence[Group], *, betas: tuple[float, float], eps: float, rate_factor: float = 1.0) -> AdamW:
    """Make AdamW over `groups`, each at its own rate times `rate_factor`."""
    fused = all(p.device.type in _FUSED and p.is_floating_point() for group in groups for p in group.params)
    dicts = [group.as_dict(lr=group.lr * rate_factor) for group in groups]
    return AdamW(dicts, lr=dicts[0]["lr"], betas=betas, eps=eps, weight_decay=0.0, fused=fused or None)
