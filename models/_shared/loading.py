"""Build diffusers' and transformers' modules from a config and tensors, without drawing random weights first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.core.errors import UserError

from .resolve import read_json, weight_paths
from .weight_files import read_tensors

TEXT_PREFIX = "text_model."
_OLD_ATTENTION = {".query.": ".to_q.", ".key.": ".to_k.", ".value.": ".to_v.", ".proj_attn.": ".to_out.0."}


def make_module(config: Mapping[str, Any]) -> nn.Module:
    """Make the module a config describes, where torch's current default device says (also "meta")."""
    import diffusers
    import transformers

    name = config.get("_class_name") or config["architectures"][0]
    if name in ("UNet2DConditionModel", "AutoencoderKL"):
        made: nn.Module = getattr(diffusers, name).from_config(dict(config))
        return made
    return getattr(transformers, name)(transformers.CLIPTextConfig.from_dict(dict(config)))


def load_module(
    config: Mapping[str, Any],
    state: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    where: str,
) -> nn.Module:
    """Make a module and give it the tensors of `state`; frozen and in evaluation mode."""
    with torch.device("meta"):
        module = make_module(config)
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    _check(expected, state, where)
    cast = {name: _cast(state[name], dtype, device) for name in expected}
    module.load_state_dict(cast, strict=True, assign=True)
    _fill_position_ids(module, device)
    return module.requires_grad_(False).eval()


def read_part(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read config and tensors of one part's folder, names as the libraries have them today."""
    config = read_json(folder / "config.json")
    state: dict[str, Tensor] = {}
    for path in weight_paths(folder):
        state.update(read_tensors(path))
    return config, modern_names(config, state)


def modern_names(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename what older library versions wrote: attention of the VAE, and the prefix of CLIP text encoders."""
    if config.get("_class_name") == "AutoencoderKL":
        return {_modern_attention(name): tensor for name, tensor in state.items()}
    if "architectures" in config:
        prefixed = config["architectures"][0] == "CLIPTextModelWithProjection"
        kept = {name: tensor for name, tensor in state.items() if not name.endswith(".position_ids")}
        return {text_name(name, prefixed): tensor for name, tensor in kept.items()}
    return dict(state)


def text_name(name: str, prefixed: bool) -> str:
    """Write a CLIP text name with or without "text_model.": transformers 5 dropped it for one of two classes."""
    bare = name.removeprefix(TEXT_PREFIX)
    return TEXT_PREFIX + bare if prefixed and not bare.startswith("text_projection") else bare


def _modern_attention(name: str) -> str:
    if ".attentions." in name:
        for old, new in _OLD_ATTENTION.items():
            name = name.replace(old, new)
    return name


def _check(expected: Mapping[str, tuple[int, ...]], state: Mapping[str, Tensor], where: str) -> None:
    """Refuse weights that do not fill the module: a missing tensor would stay random without a word."""
    missing = [name for name in expected if name not in state]
    odd = [name for name, shape in expected.items() if name in state and tuple(state[name].shape) != shape]
    if missing:
        raise UserError(
            f"{len(missing)} tensors are missing, e.g. {missing[0]}", where=where, remedy="the file is incomplete"
        )
    if odd:
        name = odd[0]
        shapes = f"{tuple(state[name].shape)} instead of {expected[name]}"
        what = f"{len(odd)} tensors have another shape, e.g. {name}: {shapes}"
        raise UserError(what, where=where, remedy="the weights do not belong to this config")


def _cast(tensor: Tensor, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Move a tensor; floats get `dtype`. A copy where nothing changes, so that no file stays mapped."""
    return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else tensor.dtype, copy=True)


def _fill_position_ids(module: nn.Module, device: torch.device | str) -> None:
    """Make the buffers that no file holds: CLIP's 0, 1, 2 ..."""
    for parent in module.modules():
        for name, buffer in list(parent.named_buffers(recurse=False)):
            if buffer.is_meta and name == "position_ids":
                ids = torch.arange(buffer.shape[-1], device=device).expand(buffer.shape)
                parent.register_buffer(name, ids, persistent=False)
