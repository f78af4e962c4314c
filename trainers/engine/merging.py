"""A LoRA file on a base model: what the file says about itself, and its change added to the base's weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from safetensors import safe_open
from torch import Tensor, nn

from trainers.checkpoint.export import weight_changes
from trainers.core.errors import UserError
from trainers.core.facts import PredictionKind
from trainers.core.family import Weights
from trainers.presets.plugins import facts_of, families

BUILTIN = "builtin:"


def header_of(file: Path) -> tuple[dict[str, str], bool]:
    """What the header of a weight file says, and whether the file holds a LoRA; ({}, False) for anything else."""
    if file.suffix != ".safetensors" or not file.is_file():
        return {}, False
    with safe_open(file, framework="pt") as opened:
        return dict(opened.metadata() or {}), any("lora" in name for name in opened.keys())  # noqa: SIM118 - no dict


def family_from(header: Mapping[str, str], *sources: str) -> str | None:
    """Guess the family of a file from its header, or from the names of embedded models; None where neither tells."""
    named = [header.get("trainers.family", ""), *(source.removeprefix(BUILTIN) for source in sources)]
    known = next((name for name in named if name in families()), None)
    architecture = header.get("modelspec.architecture", "").removesuffix("/lora")
    if known is None and architecture:
        return next((name for name in families() if facts_of(name).modelspec == architecture), None)
    return known


def as_trained(weights: Weights, header: Mapping[str, str]) -> Weights:
    """The base, sampled as the LoRA was trained where its header tells: prediction kind, path, zero-terminal SNR."""
    prediction = header.get("trainers.prediction")
    if not prediction:
        return weights
    facts = weights.facts
    zero = header.get("trainers.zero_terminal_snr") == "true"
    return replace(
        weights,
        facts=replace(
            facts,
            prediction=cast(PredictionKind, prediction),
            path="rectified" if prediction == "velocity" else facts.path,
            schedule=replace(facts.schedule, zero_terminal_snr=zero) if facts.schedule else None,
        ),
    )


@torch.no_grad()
def merge_lora(modules: Mapping[str, nn.Module], state: Mapping[str, Tensor], strength: float, where: str) -> None:
    """Move the weights of `modules` (by part) towards those with the LoRA in them; 0 leaves them, 1 is all of it.

    Plain: W + strength * alpha / rank * B A. DoRA: the merged rows get their length `dora_scale`, then the difference
    to W is scaled, as ComfyUI does it. `state` has canonical names; the sum is formed in float32.
    """
    changes = weight_changes(state)
    lengths = {name: changes.pop(name) for name in list(changes) if name.endswith(".dora_scale")}
    weights = {name: _weight_of(modules, name) for name in changes}
    alien = [name for name, change in changes.items() if not _fits(weights[name], change)]
    if alien:
        raise UserError(
            f"the base has no place for {len(alien)} of the {len(changes)} layers of this LoRA, first {alien[0]}",
            where=where,
            remedy="name with --base (and --family) the model that the LoRA was trained on",
        )
    for name, change in changes.items():
        weight = cast(Tensor, weights[name])
        plain = weight.float()
        merged = plain + change.to(plain.device).view(plain.shape)
        length = lengths.get(f"{name}.dora_scale")
        if length is not None:
            norms = torch.linalg.vector_norm(merged.flatten(1), dim=1)
            merged *= (length.to(plain.device) / norms).view(-1, *[1] * (merged.ndim - 1))
        weight.copy_(torch.lerp(plain, merged, strength))


def _weight_of(modules: Mapping[str, nn.Module], name: str) -> Tensor | None:
    """The weight of "<part>.<module path>", None where there is no such layer."""
    part, _, path = name.partition(".")
    try:
        weight = modules[part].get_submodule(path).weight
    except (KeyError, AttributeError):
        return None
    return weight if isinstance(weight, Tensor) else None


def _fits(weight: Tensor | None, change: Tensor) -> bool:
    return weight is not None and weight.numel() == change.numel() and weight.shape[0] == change.shape[0]
