"""CLIP text encoders in single files: Hugging Face's names (SD 1, SDXL's first) or OpenCLIP's (SD 2, SDXL's second).

OpenCLIP fuses query, key and value to one matrix [3D, D] and keeps its projection as [D, P] rather than [P, D].
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_RIM = {
    "token_embedding.weight": "embeddings.token_embedding.weight",
    "positional_embedding": "embeddings.position_embedding.weight",
    "ln_final.weight": "final_layer_norm.weight",
    "ln_final.bias": "final_layer_norm.bias",
}
_LAYER = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
    "attn.out_proj": "self_attn.out_proj",
}
_HEADS = ("q_proj", "k_proj", "v_proj")
_BLOCK = re.compile(r"transformer\.resblocks\.(\d+)\.(.+)$")
_OUR_LAYER = re.compile(r"encoder\.layers\.(\d+)\.(.+)$")


def count_layers(state: Mapping[str, Tensor]) -> int:
    """Count OpenCLIP's layers."""
    return len({match[1] for name in state if (match := _BLOCK.match(name))})


def from_open_clip(state: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """OpenCLIP's tensors -> Hugging Face's names without prefix; only the first `layers` (SD 2 skips its last)."""
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        block = _BLOCK.match(name)
        if name in _RIM:
            found[_RIM[name]] = tensor
        elif name == "text_projection":
            found["text_projection.weight"] = tensor.t()
        elif name == "text_projection.weight":
            found[name] = tensor
        elif block and int(block[1]) < layers:
            found.update(_split_layer(f"encoder.layers.{block[1]}", block[2], tensor))
    return found


def _split_layer(layer: str, rest: str, tensor: Tensor) -> dict[str, Tensor]:
    if rest.startswith("attn.in_proj_"):
        leaf = rest.removeprefix("attn.in_proj_")
        return {f"{layer}.self_attn.{head}.{leaf}": part for head, part in zip(_HEADS, tensor.chunk(3), strict=True)}
    module, leaf = rest.rsplit(".", 1)
    return {f"{layer}.{_LAYER[module]}.{leaf}": tensor}


def to_open_clip(state: Mapping[str, Tensor], *, repeat_last: bool) -> dict[str, Tensor]:
    """Hugging Face's names without prefix -> OpenCLIP's. `repeat_last` fills the layer that SD 2's users never run."""
    turned_rim = {ours: theirs for theirs, ours in _RIM.items()}
    found: dict[str, Tensor] = {}
    layers: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        match = _OUR_LAYER.match(name)
        if match:
            layers.setdefault(int(match[1]), {})[match[2]] = tensor
        elif name == "text_projection.weight":
            found["text_projection"] = tensor.t().contiguous()
        elif name in turned_rim:
            found[turned_rim[name]] = tensor
    if repeat_last and layers:
        layers[max(layers) + 1] = layers[max(layers)]
    for number, layer in layers.items():
        found.update({f"transformer.resblocks.{number}.{rest}": tensor for rest, tensor in _fuse_layer(layer).items()})
    return found


def _fuse_layer(layer: Mapping[str, Tensor]) -> dict[str, Tensor]:
    turned = {ours: theirs for theirs, ours in _LAYER.items()}
    fused: dict[str, Tensor] = {}
    for leaf in ("weight", "bias"):
        heads = [layer[f"self_attn.{head}.{leaf}"] for head in _HEADS if f"self_attn.{head}.{leaf}" in layer]
        if len(heads) == len(_HEADS):
            fused[f"attn.in_proj_{leaf}"] = torch.cat(heads)
    for name, tensor in layer.items():
        module, leaf = name.rsplit(".", 1)
        if module in turned:
            fused[f"{turned[module]}.{leaf}"] = tensor.clone()
    return fused
