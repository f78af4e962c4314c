"""Published layouts of LoRAs and models <-> our canonical names.

Ours: "<part>.<path>" + ".lora_A.weight" [r, in, ...], ".lora_B.weight" [out, r, ...], ".alpha", ".dora_scale" [out].
The weight change is (alpha / r) * B A; DoRA (Liu et al. 2024) then gives each output row the length `dora_scale`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainers.core.errors import Problem, UserError

from . import lora_names, single_file
from .architecture import FOLDER_OF_PART, Architecture
from .loading import modern_names, text_name
from .traits import UNET

Module = dict[str, Tensor]
_ADAPTER_METADATA = "lora_adapter_metadata"
_SUFFIXES = {
    "lora_A": r"\.lora_down\.weight|\.lora_A(?:\.default)?(?:\.weight)?|(?:[._]lora|\.lora_linear_layer)\.down\.weight",
    "lora_B": r"\.lora_up\.weight|\.lora_B(?:\.default)?(?:\.weight)?|(?:[._]lora|\.lora_linear_layer)\.up\.weight",
    "alpha": r"\.alpha",
    "dora_scale": r"\.dora_scale|\.lora_magnitude_vector(?:\.default)?(?:\.weight)?",
}
_PATTERNS = {leaf: re.compile(f"^(.+?)(?:{suffix})$") for leaf, suffix in _SUFFIXES.items()}
_OTHER_METHODS = ("hada_", "lokr_", "oft_", "lora_mid", ".diff", "glora", "a1.weight")


def is_lora(state: Mapping[str, Tensor]) -> bool:
    """Tell a LoRA from a model by its names."""
    return any("lora" in name for name in state)


def to_published(state: Mapping[str, Tensor], layout: str, architecture: Architecture) -> dict[str, Tensor]:
    """Write a LoRA as "kohya" or "diffusers", a model as "single_file" or "diffusers"."""
    if is_lora(state):
        if layout == "kohya":
            return _to_kohya(state, architecture)
        if layout == "diffusers":
            return _to_diffusers(state)
    elif layout == "single_file":
        return single_file.to_single_file(state, architecture)
    elif layout == "diffusers":
        return {_model_name(name): tensor for name, tensor in state.items()}
    facts = architecture.facts
    known = facts.lora_layouts if is_lora(state) else facts.model_layouts
    raise UserError(f'there is no layout "{layout}" here', where=facts.name, remedy=f"known: {', '.join(known)}")


def from_published(
    state: Mapping[str, Tensor], architecture: Architecture, metadata: Mapping[str, str] | None = None
) -> dict[str, Tensor]:
    """Read a LoRA or a model from any known layout; a name that is not understood is an error, never skipped.

    `metadata` is the file's header: diffusers keeps alpha there and not among the tensors.
    """
    if is_lora(state):
        return _read_lora(state, architecture, json.loads((metadata or {}).get(_ADAPTER_METADATA, "{}")))
    if any(name.startswith(UNET) for name in state):
        return single_file.from_single_file(state, architecture)
    parts = {folder: part for part, folder in FOLDER_OF_PART.items()} | {"denoiser": "denoiser"}
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        folder, _, rest = name.partition(".")
        if folder not in parts:
            raise UserError(f'the name "{name}" belongs to no part', where=architecture.facts.name)
        part = parts[folder]
        found.update(
            {f"{part}.{new}": value for new, value in modern_names(architecture.config(part), {rest: tensor}).items()}
        )
    return found


def modules_of(state: Mapping[str, Tensor]) -> dict[str, Module]:
    """Group a canonical LoRA state by module: {"denoiser.mid_block...to_q": {"lora_A": ..., "lora_B": ...}}."""
    found: dict[str, Module] = {}
    for name, tensor in state.items():
        for leaf, pattern in _PATTERNS.items():
            match = pattern.match(name)
            if match:
                found.setdefault(match[1], {})[leaf] = tensor
                break
    return found


def scale_of(module: Module) -> float:
    """Return alpha / rank; without an alpha it is 1."""
    rank = module["lora_A"].shape[0]
    return float(module["alpha"]) / rank if "alpha" in module else 1.0


def _alpha_of(module: Module) -> float:
    return scale_of(module) * module["lora_A"].shape[0]


def _usual_alpha(modules: Mapping[str, Module]) -> float:
    """Return the alpha that most modules have; the smallest of equally frequent ones."""
    counts = Counter(_alpha_of(module) for module in modules.values())
    return min(counts, key=lambda alpha: (-counts[alpha], alpha))


def lora_metadata(state: Mapping[str, Tensor], layout: str) -> dict[str, str]:
    """Describe a LoRA in the header of its file: rank and alpha as they were trained, and kohya's words for them."""
    modules = modules_of(state)
    ranks = sorted({module["lora_A"].shape[0] for module in modules.values()})
    alphas = sorted({_alpha_of(module) for module in modules.values()})
    words = {"format": "pt", "rank": " ".join(map(str, ranks)), "alpha": " ".join(f"{alpha:g}" for alpha in alphas)}
    if layout == "kohya":
        words |= {
            "ss_network_module": "networks.lora",
            "ss_network_dim": str(max(ranks)),
            "ss_network_alpha": f"{_usual_alpha(modules):g}",
        }
    return words


def _to_kohya(state: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """One alpha for all modules, since diffusers' reader of this layout drops those that differ; a rest goes into B.

    The DoRA scale is written as a column [out, 1], so that readers see that it belongs to the output axis.
    """
    found: dict[str, Tensor] = {}
    modules = modules_of(state)
    alpha = _usual_alpha(modules)
    for name, module in modules.items():
        part, _, path = name.partition(".")
        base = lora_names.to_kohya(part, path, architecture)
        down, rest = module["lora_A"], _alpha_of(module) / alpha
        found[f"{base}.lora_down.weight"] = down.contiguous()
        found[f"{base}.lora_up.weight"] = (module["lora_B"] if rest == 1 else module["lora_B"] * rest).contiguous()
        found[f"{base}.alpha"] = torch.tensor(alpha, dtype=torch.float32)
        if "dora_scale" in module:
            column = [-1] + [1] * (down.ndim - 1)
            found[f"{base}.dora_scale"] = module["dora_scale"].reshape(column).contiguous()
    return found


def _to_diffusers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """alpha / rank goes into B: readers without an alpha take 1, so the strength is right everywhere."""
    found: dict[str, Tensor] = {}
    for name, module in modules_of(state).items():
        part, _, path = name.partition(".")
        base = lora_names.to_diffusers(part, path)
        found[f"{base}.lora_A.weight"] = module["lora_A"].contiguous()
        found[f"{base}.lora_B.weight"] = (module["lora_B"] * scale_of(module)).contiguous()
        if "dora_scale" in module:
            row = [1, -1, 1, 1] if module["lora_A"].ndim == 4 else [-1]
            leaf = "lora_magnitude_vector" if part == "denoiser" else "lora_magnitude_vector.weight"
            found[f"{base}.{leaf}"] = module["dora_scale"].reshape(row).contiguous()
    return found


def _read_lora(state: Mapping[str, Tensor], architecture: Architecture, config: Mapping[str, Any]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    unknown: list[str] = []
    for name, tensor in state.items():
        leaf, module = _split(name)
        place = lora_names.from_any(module, architecture) if leaf else None
        if place is None or leaf is None:
            unknown.append(name)
        elif leaf == "dora_scale":
            found[f"{place[0]}.{place[1]}.dora_scale"] = tensor.float()
        elif leaf == "alpha":
            found[f"{place[0]}.{place[1]}.alpha"] = tensor.float().reshape(())
        else:
            found[f"{place[0]}.{place[1]}.{leaf}.weight"] = tensor.float()
    if unknown:
        raise UserError(_explain(unknown, architecture))
    return _complete(found, _alphas(config, found))


def _alphas(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, float]:
    """Read each module's alpha from PEFT's config as diffusers writes it into the header ("unet.lora_alpha" ...)."""
    alphas: dict[str, float] = {}
    for name in modules_of(state):
        part, _, path = name.partition(".")
        folder = FOLDER_OF_PART[part]
        patterns: Mapping[str, float] = config.get(f"{folder}.alpha_pattern") or {}
        own = [alpha for end, alpha in patterns.items() if path == end or path.endswith("." + end)]
        usual = config.get(f"{folder}.lora_alpha")
        if own:
            alphas[name] = float(own[0])
        elif usual is not None:
            alphas[name] = float(usual)
    return alphas


def _split(name: str) -> tuple[str | None, str]:
    for leaf, pattern in _PATTERNS.items():
        match = pattern.match(name)
        if match:
            return leaf, match[1]
    return None, name


def _complete(state: dict[str, Tensor], alphas: Mapping[str, float]) -> dict[str, Tensor]:
    """Add the alpha that the tensors leave out (from `alphas`, else = rank), and bring DoRA scales to [out]."""
    for name, module in modules_of(state).items():
        if "lora_A" not in module or "lora_B" not in module:
            raise UserError(f"{name}: half of the LoRA pair is missing", remedy="the file is damaged")
        state.setdefault(f"{name}.alpha", torch.tensor(alphas.get(name, float(module["lora_A"].shape[0]))))
        if "dora_scale" in module:
            scale, out = module["dora_scale"].flatten(), module["lora_B"].shape[0]
            column = (
                module["dora_scale"].ndim == 1 or module["dora_scale"].shape[0] == out or module["dora_scale"].ndim == 4
            )
            if scale.numel() != out or not column:
                raise UserError(f"{name}: DoRA scales per input are not supported, only per output")
            state[f"{name}.dora_scale"] = scale
    return state


def _explain(unknown: list[str], architecture: Architecture) -> list[Problem]:
    first = unknown[0]
    if any(word in name for name in unknown for word in _OTHER_METHODS):
        what = f'"{first}" is of another method than LoRA (LoHa, LoKr, OFT ...)'
        return [Problem(architecture.facts.name, what, "only LoRA and DoRA files can be read")]
    what = f'{len(unknown)} names are not of a {architecture.facts.title} LoRA, e.g. "{first}"'
    return [Problem(architecture.facts.name, what, "check which base model the file was made for")]


def _model_name(name: str) -> str:
    """Our model name -> "<folder>.<name>"; text encoders with the prefix that every transformers version reads."""
    part, _, rest = name.partition(".")
    if part.startswith("text_encoder"):
        rest = text_name(rest, True)
    return f"{FOLDER_OF_PART[part]}.{rest}"
