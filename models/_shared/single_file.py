"""Single-file checkpoints in the original layout (A1111, ComfyUI): read one part, or write all of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from trainers.core.facts import Facts
from trainers.core.family import Weights

from . import ldm_text, ldm_unet, ldm_vae
from .architecture import FOLDER_OF_PART, Architecture, TextForm
from .loading import modern_names, text_name
from .loading import read_part as read_folder_part
from .resolve import read_json
from .single_file_facts import VAE_PREFIX, configs_beside
from .traits import UNET
from .weight_files import read_tensors

_SHAPE_SETTINGS = (
    "block_out_channels",
    "layers_per_block",
    "attention_head_dim",
    "cross_attention_dim",
    "norm_num_groups",
    "latent_channels",
    "scaling_factor",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
)


def read_part(
    file: Path, part: str, configs: Path, architecture: Architecture
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read one part of a single file: its config and its tensors under diffusers' or transformers' names."""
    config = read_json(configs / "config.json")
    if part == "vae":
        return read_vae(file, configs)
    prefix = UNET if part == "denoiser" else architecture.texts[part].prefix
    state = _without(prefix, read_tensors(file, lambda name: name.startswith(prefix)))
    if part == "denoiser":
        return config, rename(state, ldm_unet.prefixes(config))
    return config, _read_text(state, architecture.texts[part], config)


def read_vae(file: Path, configs: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a VAE from a full checkpoint, or from a file of its own in the original or diffusers' names."""
    config = read_json(configs / "config.json")
    state = read_tensors(file, lambda name: not name.startswith(UNET))
    if any(name.startswith(VAE_PREFIX) for name in state):
        state = _without(VAE_PREFIX, {name: tensor for name, tensor in state.items() if name.startswith(VAE_PREFIX)})
    if any(".down_blocks." in name for name in state):
        return config, modern_names(config, state)
    return config, _read_vae_names(state, config)


def _read_vae_names(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    flat = {name: tensor.flatten(1) if name in ldm_vae.ONE_BY_ONE else tensor for name, tensor in state.items()}
    return rename(flat, ldm_vae.prefixes(config))


def _read_text(state: Mapping[str, Tensor], form: TextForm, config: Mapping[str, Any]) -> dict[str, Tensor]:
    if form.open_clip:
        usual, layers = int(config["num_hidden_layers"]), ldm_text.count_layers(state)
        if form.spare_layer and layers < usual:  # a model of fewer layers than the family's
            usual = layers - 1
        found = ldm_text.from_open_clip(state, usual)
        return {text_name(name, form.wrapped): tensor for name, tensor in found.items()}
    return modern_names(config, state)


def from_single_file(state: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """All tensors of a single file -> our canonical names; what belongs to no part (schedules, averages) stays out."""
    found: dict[str, Tensor] = {}
    prefixes = {"denoiser": UNET, "vae": VAE_PREFIX} | {part: form.prefix for part, form in architecture.texts.items()}
    for part, prefix in prefixes.items():
        inside = _without(prefix, {name: tensor for name, tensor in state.items() if name.startswith(prefix)})
        config = architecture.config(part)
        if part == "denoiser":
            named = rename(inside, ldm_unet.prefixes(config))
        elif part == "vae":
            named = _read_vae_names(inside, config)
        else:
            named = _read_text(inside, architecture.texts[part], config)
        found.update({f"{part}.{name}": tensor for name, tensor in named.items()})
    return found


def to_single_file(state: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """Our canonical model names -> the original layout."""
    found: dict[str, Tensor] = {}
    for part in architecture.parts:
        inside = _without(f"{part}.", {name: tensor for name, tensor in state.items() if name.startswith(f"{part}.")})
        if part == "denoiser":
            named, prefix = rename(inside, _turned(ldm_unet.prefixes(architecture.config(part)))), UNET
        elif part == "vae":
            named, prefix = _write_vae_names(inside, architecture.config(part)), VAE_PREFIX
        else:
            form = architecture.texts[part]
            named, prefix = _write_text(inside, form), form.prefix
        found.update({prefix + name: tensor for name, tensor in named.items()})
    return found


def _write_vae_names(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    named = rename(state, _turned(ldm_vae.prefixes(config)))
    return {name: tensor[:, :, None, None] if name in ldm_vae.ONE_BY_ONE else tensor for name, tensor in named.items()}


def _write_text(state: Mapping[str, Tensor], form: TextForm) -> dict[str, Tensor]:
    if form.open_clip:
        bare = {text_name(name, False): tensor for name, tensor in state.items()}
        return ldm_text.to_open_clip(bare, repeat_last=form.spare_layer)
    return {text_name(name, True): tensor for name, tensor in state.items()}


def write(
    weights: Weights, file: Path, architecture: Architecture, *, state: Mapping[str, Tensor] | None = None
) -> Path:
    """Write a model as one file in the original layout: `state` (canonical names), or the weights as they are."""
    tensors = to_single_file(state if state is not None else read_state(weights, architecture), architecture)
    tensors |= markers(weights.facts)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, {"format": "pt"})
    write_configs(weights, file, architecture)
    return file


def markers(facts: Facts) -> dict[str, Tensor]:
    """Return the empty tensors by which a single file tells ComfyUI and others what its weights predict."""
    zero_snr = facts.schedule is not None and facts.schedule.zero_terminal_snr
    names = [name for name, wanted in (("v_pred", facts.prediction == "v"), ("ztsnr", zero_snr)) if wanted]
    return {name: torch.zeros(0) for name in names}


def write_configs(weights: Weights, file: Path, architecture: Architecture) -> Path | None:
    """Put configs and tokenizers into "NAME.configs" beside a single file, if its model has not the family's shapes."""
    if not any(_differs(weights.folder, part, architecture) for part in architecture.parts):
        return None
    large = shutil.ignore_patterns("*.safetensors", "*.bin", ".*")
    return Path(shutil.copytree(weights.folder, configs_beside(file), ignore=large, dirs_exist_ok=True))


def read_state(weights: Weights, architecture: Architecture) -> dict[str, Tensor]:
    """Read a whole model, folder or single file, under our canonical names, in the precision of its files."""
    found: dict[str, Tensor] = {}
    for part in architecture.parts:
        folder = weights.folder / FOLDER_OF_PART[part]
        if weights.file is not None:
            _, state = read_part(weights.file, part, folder, architecture)
        else:
            _, state = read_folder_part(folder)
        found.update({f"{part}.{name}": tensor for name, tensor in state.items()})
    return found


def _differs(folder: Path, part: str, architecture: Architecture) -> bool:
    """Tell whether a part's config asks for other shapes than the family's."""
    own, usual = read_json(folder / FOLDER_OF_PART[part] / "config.json"), architecture.config(part)
    return any(own.get(name) != usual.get(name) for name in _SHAPE_SETTINGS if name in usual)


def rename(state: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    """Replace the longest known prefix of each name; a name without one is left out."""
    found = {}
    for name, tensor in state.items():
        new = renamed(name, prefixes)
        if new is not None:
            found[new] = tensor
    return found


def renamed(name: str, prefixes: Mapping[str, str]) -> str | None:
    """Replace the longest known module prefix of a dotted name, or return None."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        new = prefixes.get(".".join(words[:length]))
        if new is not None:
            return ".".join([new, *words[length:]])
    return None


def _turned(prefixes: Mapping[str, str]) -> dict[str, str]:
    return {ours: theirs for theirs, ours in prefixes.items()}


def _without(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}
