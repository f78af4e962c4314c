"""The LoRA adapter: puts layers into the networks, and reads, writes and merges their weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainers.core import random
from trainers.core.facts import Facts

from ._dropout import layer_words
from ._lora_layer import LoraLayer, Shared, make_layer
from ._lora_plan import LayerPlan, Planned
from ._match import PerName, choose_parts, role_of
from ._protocol import Role, Trainable
from ._state import check_same


class LoraAdapter:
    """LoRA or DoRA on the layers that `plan` chooses. The base stays frozen in whatever type it was loaded."""

    kind_of_export: Literal["lora", "model"] = "lora"

    def __init__(
        self,
        *,
        plan: LayerPlan,
        parts: Sequence[str],
        rates: Mapping[str, float],
        dropout: float,
        dora: bool,
        seed: int,
        init_from: str | None = None,
    ) -> None:
        self.init_from = init_from
        self._plan = plan
        self._parts = parts
        self._rates = PerName(rates, "train.lr")
        self._dora = dora
        self._seed = seed
        self._shared = Shared(dropout=dropout)
        self._layers: dict[str, LoraLayer] = {}
        self._parents: dict[str, tuple[nn.Module, str]] = {}

    @property
    def layers(self) -> Mapping[str, LoraLayer]:
        """The adapted layers by canonical module name."""
        return self._layers

    def attach(self, modules: Mapping[str, nn.Module], facts: Facts) -> list[Trainable]:
        """Freeze every network, wrap the chosen layers, and return their weights."""
        for module in modules.values():
            module.requires_grad_(False)
        chosen = choose_parts(self._parts, modules)
        planned = self._plan.choose(chosen, facts)
        self._rates.check([item.name for item in planned])
        trained: list[Trainable] = []
        for index, item in enumerate(planned):
            part, _, path = item.name.partition(".")
            parent, _, leaf = path.rpartition(".")
            owner = chosen[part].get_submodule(parent)
            role = role_of(item.layer, "weight", f"{item.name}.weight", facts.muon_excluded)
            layer = make_layer(item.layer, self._start(item), item.factor, index, self._shared, self._dora)
            setattr(owner, leaf, layer)
            self._layers[item.name] = layer
            self._parents[item.name] = (owner, leaf)
            trained.extend(self._trainables(item.name, part, layer, role))
        return trained

    def _start(self, item: Planned) -> Tensor:
        """Draw A uniform in +-1/sqrt(fan in), as PEFT does, from the run's seed and the layer's name."""
        shape = (item.rank, *item.layer.get_parameter("weight").shape[1:])
        bound = 1.0 / math.sqrt(math.prod(shape[1:]))
        draw = random.generator(self._seed, "lora_A", item.name).uniform(-bound, bound, shape)
        return torch.from_numpy(draw).float()

    def _trainables(self, name: str, part: str, layer: LoraLayer, role: Role) -> Iterator[Trainable]:
        rate = self._rates.get(name)
        yield Trainable(f"{name}.lora_A.weight", part, layer.lora_A, role, rate)
        yield Trainable(f"{name}.lora_B.weight", part, layer.lora_B, role, rate)
        if layer.dora_scale is not None:
            yield Trainable(f"{name}.dora_scale", part, layer.dora_scale, "vector", rate)

    def set_draw(self, keys: Sequence[int]) -> None:
        """Set the random keys of the next micro-batch, one per sample; they decide what dropout hides."""
        if self._shared.dropout and self._layers:
            device = next(iter(self._layers.values())).lora_A.device
            self._shared.words = layer_words(keys, len(self._layers)).to(device)

    def state(self) -> dict[str, Tensor]:
        """Return the canonical LoRA state: per layer lora_A.weight, lora_B.weight, alpha and, for DoRA, dora_scale."""
        state: dict[str, Tensor] = {}
        for name, layer in self._layers.items():
            state[f"{name}.lora_A.weight"] = layer.lora_A.detach()
            state[f"{name}.lora_B.weight"] = layer.lora_B.detach()
            state[f"{name}.alpha"] = torch.tensor(layer.factor * layer.rank, dtype=torch.float32)
            if layer.dora_scale is not None:
                state[f"{name}.dora_scale"] = layer.dora_scale.detach()
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy a LoRA state into the live layers.

        A layer without alpha has alpha = rank. Where alpha differs from this run's, B is rescaled, so that the loaded
        LoRA acts with the strength it was trained at.
        """
        wanted = {name: tuple(tensor.shape) for name, tensor in self.state().items()}
        alphas = {f"{name}.alpha": torch.tensor(float(layer.rank)) for name, layer in self._layers.items()}
        full = {**alphas, **state}
        check_same(full, wanted, "the saved LoRA")
        with torch.no_grad():
            for name, layer in self._layers.items():
                layer.lora_A.copy_(full[f"{name}.lora_A.weight"])
                layer.lora_B.copy_(full[f"{name}.lora_B.weight"])
                if layer.dora_scale is not None:
                    layer.dora_scale.copy_(full[f"{name}.dora_scale"])
                alpha = torch.tensor(layer.factor * layer.rank, dtype=torch.float32)
                saved = full[f"{name}.alpha"].float().cpu()
                if not torch.equal(saved, alpha):
                    layer.lora_B.mul_(float(saved / alpha))

    def merged_weights(self) -> dict[str, Tensor]:
        """Return the weight of every adapted layer with the adapter merged in, float32, by canonical base name."""
        return {f"{name}.weight": layer.merged_weight() for name, layer in self._layers.items()}

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Switch every layer to its base inside the block."""
        before = self._shared.enabled
        self._shared.enabled = False
        try:
            yield
        finally:
            self._shared.enabled = before

    def detach(self) -> None:
        """Put the base layers back where they were; the adapter keeps its weights."""
        for name, (owner, leaf) in self._parents.items():
            setattr(owner, leaf, self._layers[name].base_layer)
        self._parents.clear()

    def summary(self) -> dict[str, Any]:
        """Return kind, parts, layers, parameters, rank and alpha (of most layers), factor and dropout."""
        layers = self._layers.values()
        parameters = sum(p.numel() for layer in layers for p in layer.parameters() if p.requires_grad)
        return {
            "kind": "lora",
            "parts": list(dict.fromkeys(name.partition(".")[0] for name in self._layers)),
            "layers": len(self._layers),
            "parameters": parameters,
            "rank": self._plan.rank,
            "alpha": self._plan.rank * self._plan.factor,
            "factor": self._plan.factor,
            "conv_rank": self._plan.conv_rank,
            "dropout": self._shared.dropout,
            "dora": self._dora,
        }
