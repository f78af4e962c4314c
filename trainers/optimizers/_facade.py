"""One face for any number of optimizers: rates, steps, states by weight name, and the weights to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainers.core.errors import Problem, UserError

_OURS = {"params", "names", "lr", "initial_lr"}
_SHOWN = 4


class Bundle:
    """Optimizers that step together. Each torch group carries `names`, the canonical names of its `params`.

    A saved state holds what the optimizers have learned: their per-weight state, and those values of a group that they
    changed themselves (Prodigy's d, schedule-free's averages). Settings come from the preset of the run that loads it.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = list(optimizers)
        for group in self._groups():
            group["initial_lr"] = group["lr"]
        self._fresh = [_plain(group) for group in self._groups()]
        names = self.names()
        if len(set(names)) != len(names):
            raise ValueError("a weight is in more than one group")

    @property
    def kind(self) -> str:
        """Class names of the optimizers, e.g. "Muon + AdamW"."""
        return " + ".join(dict.fromkeys(type(optimizer).__name__ for optimizer in self.optimizers))

    def names(self) -> list[str]:
        """Canonical names of all weights, in order."""
        return [name for group in self._groups() for name in group["names"]]

    def parameters(self) -> list[Tensor]:
        """All weights, in the order of `names()`."""
        return [parameter for group in self._groups() for parameter in group["params"]]

    def set_factor(self, factor: float) -> None:
        """Set every learning rate to its base rate times `factor`."""
        for group in self._groups():
            group["lr"] = group["initial_lr"] * factor

    def rates(self) -> dict[str, float]:
        """Return the present learning rate of each group, as "<parts>/<role>"; "#2" and so on tell equal ones apart.

        Where an optimizer finds a rate itself (Prodigy's d), "<parts>/<role>/found" is the rate it really uses.
        """
        rates: dict[str, float] = {}
        for group in self._groups():
            parts = "+".join(dict.fromkeys(name.partition(".")[0] for name in group["names"]))
            label = f"{parts}/{group['role']}"
            count = sum(key.partition("#")[0] == label for key in rates)
            label = f"{label}#{count + 1}" if count else label
            rates[label] = float(group["lr"])
            if "d" in group:
                rates[f"{label}/found"] = float(group["lr"]) * float(group["d"])
        return rates

    def step(self) -> None:
        """Update the weights from their gradients."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Inside the block the weights are those to be shown, validated and exported; afterwards exactly as before.

        Only optimizers that train on other weights than they deliver (schedule-free) change anything. Their own way
        back is an interpolation that rounds, so the weights are kept aside and restored bit for bit.
        """
        moded = [item for item in self.optimizers if hasattr(item, "eval") and hasattr(item, "train")]
        weights = [p for optimizer in moded for group in optimizer.param_groups for p in group["params"]]
        kept = [weight.detach().clone() for weight in weights]
        for optimizer in moded:
            optimizer.eval()
        try:
            yield
        finally:
            for optimizer in moded:
                optimizer.train()
            with torch.no_grad():
                for weight, before in zip(weights, kept, strict=True):
                    weight.copy_(before)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as nested dicts of tensors and plain values; tensors share memory with the live ones."""
        owned: set[int] = set()
        weights: dict[str, dict[str, Any]] = {}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for name, parameter in zip(group["names"], group["params"], strict=True):
                    state = optimizer.state.get(parameter, {})
                    weights[name] = {key: _unshared(value, owned) for key, value in state.items()}
        groups = {}
        for index, (group, fresh) in enumerate(zip(self._groups(), self._fresh, strict=True)):
            values = {key: value for key, value in _plain(group).items() if key not in fresh or fresh[key] != value}
            groups[str(index)] = {"names": list(group["names"]), "values": values}
        return {"kind": self.kind, "groups": groups, "weights": weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state; a UserError says how one of another optimizer or other weights differs."""
        self._refuse_other(state)
        for index, group in enumerate(self._groups()):
            for key, value in state["groups"][str(index)]["values"].items():
                was_tuple = isinstance(group.get(key), tuple)
                group[key] = tuple(value) if was_tuple else value
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for name, parameter in zip(group["names"], group["params"], strict=True):
                    saved = state["weights"].get(name) or {}
                    optimizer.state.pop(parameter, None)
                    if saved:
                        optimizer.state[parameter] = {
                            key: _placed(key, value, parameter, group) for key, value in saved.items()
                        }

    def _groups(self) -> Iterator[dict[str, Any]]:
        for optimizer in self.optimizers:
            yield from optimizer.param_groups

    def _refuse_other(self, state: Mapping[str, Any]) -> None:
        if state["kind"] != self.kind:
            raise UserError(
                f"the saved optimizer state belongs to {state['kind']}, this run uses {self.kind}",
                where="optimizer.kind",
                remedy="resume with the optimizer of the checkpoint, or start a new run from its weights",
            )
        saved = [list(group["names"]) for group in state["groups"].values()]
        if saved == [list(group["names"]) for group in self._groups()]:
            return
        before, now = {name for names in saved for name in names}, set(self.names())
        problems = [
            *_differences(sorted(now - before), "the saved optimizer state lacks"),
            *_differences(sorted(before - now), "the saved optimizer state has weights that this run does not train:"),
        ]
        raise UserError(problems or [Problem("optimizer", "the saved state groups the weights differently")])


def _differences(names: list[str], what: str) -> list[Problem]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    remedy = "train the same parts and targets as the checkpoint"
    return [Problem("", f"{what} {', '.join(names[:_SHOWN])}{more}", remedy)]


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's values other than weights, names and rates."""
    return {key: value for key, value in group.items() if key not in _OURS}


def _unshared(value: Any, owned: set[int]) -> Any:
    """Detach a tensor; copy it where another weight's state uses the same memory (8-bit code tables do)."""
    if not isinstance(value, Tensor):
        return value
    place = value.untyped_storage().data_ptr()
    if place in owned and value.numel():
        return value.detach().clone()
    owned.add(place)
    return value.detach()


def _placed(key: str, value: Any, parameter: Tensor, group: Mapping[str, Any]) -> Any:
    """Copy a saved value to where the optimizer keeps it: step counters stay on the CPU unless fused or captured.

    What has the shape of its weight gets the weight's order in memory as well: kernels walk over both side by side, and
    that order may have changed (channels-last) since the state was saved.
    """
    if not isinstance(value, Tensor):
        return value
    on_cpu = key == "step" and value.ndim == 0 and not group.get("fused") and not group.get("capturable")
    device = torch.device("cpu") if on_cpu else parameter.device
    if value.shape != parameter.shape or _order(value) == _order(parameter):
        return value.detach().clone().to(device)
    if not value.is_floating_point():
        raise UserError(
            "the averages in 8 bits were saved in another order in memory, and their scales belong to that order",
            where="compute.channels_last",
            remedy="set it as it was when the checkpoint was made, true or false",
        )
    return torch.empty_like(parameter, dtype=value.dtype, device=device).copy_(value)


def _order(tensor: Tensor) -> list[int]:
    """The strides that say how a tensor lies in memory; those of axes of length 1 mean nothing."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
