"""The Lion optimizer. Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Lion(Optimizer):
    """weight -= lr * (sign(beta1 * m + (1 - beta1) * g) + decay * weight); then m = beta2 * m + (1 - beta2) * g."""

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._move(group, weights)
        return loss

    def _move(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        beta1, beta2 = group["betas"]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        updates = torch._foreach_lerp(gradients, momenta, beta1)
        torch._foreach_sign_(updates)
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1.0 - beta2)
