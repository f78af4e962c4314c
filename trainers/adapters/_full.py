"""The weights of a full fine-tune."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainers.core.errors import UserError
from trainers.core.facts import Facts

from ._match import PerName, choose_parts, matches_any, require_hits, role_of
from ._protocol import Trainable
from ._state import check_same


class FullAdapter:
    """Unfreezes weights of the networks themselves."""

    kind_of_export: Literal["lora", "model"] = "model"

    def __init__(
        self,
        *,
        parts: Sequence[str],
        rates: Mapping[str, float],
        include: Sequence[str],
        exclude: Sequence[str],
        init_from: str | None = None,
    ) -> None:
        self._parts = parts
        self._rates = PerName(rates, "train.lr")
        self._include = include
        self._exclude = exclude
        self.init_from = init_from
        self._trained: dict[str, Trainable] = {}

    def attach(self, modules: Mapping[str, nn.Module], facts: Facts) -> list[Trainable]:
        """Freeze everything, then unfreeze the chosen weights.

        A trained part becomes float32 as a whole: its weights are the master weights, and half-precision compute is
        autocast's work, so that small updates are never rounded away.
        """
        for module in modules.values():
            module.requires_grad_(False)
        chosen = choose_parts(self._parts, modules)
        owners = {name: owner for part, module in chosen.items() for name, owner in _owners(part, module)}
        require_hits(self._include, list(owners), "train.include")
        require_hits(self._exclude, list(owners), "train.exclude")
        names = [n for n in owners if matches_any(self._include, n) and not matches_any(self._exclude, n)]
        if not names:
            raise UserError("no weight is left to be trained", where="train.exclude", remedy="exclude less")
        self._rates.check(names)
        for module in chosen.values():
            module.float()
        for name in names:
            owner, leaf = owners[name], name.rpartition(".")[2]
            parameter = getattr(owner, leaf).requires_grad_(True)
            role = role_of(owner, leaf, name, facts.muon_excluded)
            self._trained[name] = Trainable(name, name.partition(".")[0], parameter, role, self._rates.get(name))
        return list(self._trained.values())

    def set_draw(self, keys: Sequence[int]) -> None:
        """Nothing is drawn in a full fine-tune."""

    def state(self) -> dict[str, Tensor]:
        """Return the trained weights by canonical name."""
        return {name: item.parameter.detach() for name, item in self._trained.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy saved weights into the live ones."""
        check_same(state, {name: tuple(t.parameter.shape) for name, t in self._trained.items()}, "the saved model")
        with torch.no_grad():
            for name, item in self._trained.items():
                item.parameter.copy_(state[name])

    def merged_weights(self) -> dict[str, Tensor]:
        """Return the trained weights: they are the model's own."""
        return self.state()

    def disabled(self) -> AbstractContextManager[None]:
        """Refuse: the base's weights have been overwritten."""
        raise UserError(
            "a full fine-tune overwrites the base model, so the untrained model is not at hand",
            remedy="load the base weights a second time, or train a LoRA",
        )

    def detach(self) -> None:
        """Nothing was put into the networks."""

    def summary(self) -> dict[str, Any]:
        """Return kind, trained parts, number of weights and of numbers in them."""
        count = sum(item.parameter.numel() for item in self._trained.values())
        parts = list(dict.fromkeys(item.part for item in self._trained.values()))
        return {"kind": "full", "parts": parts, "layers": len(self._trained), "parameters": count}


def _owners(part: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield (canonical name, module that owns it) of every weight once; a shared weight goes by its first name."""
    seen: set[int] = set()
    for path, owner in module.named_modules():
        for leaf, parameter in owner.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield ".".join(filter(None, (part, path, leaf))), owner
