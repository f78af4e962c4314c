"""Names of the U-Net's modules: original (ldm, sgm) <-> diffusers, from the block structure alone, at any width.

The original numbers its blocks in one row: `input_blocks.N.M`, `middle_block.M`, `output_blocks.N.M`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_RESNET = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
    "skip_connection": "conv_shortcut",
}
_MIDDLE = (
    ("middle_block.0", "mid_block.resnets.0"),
    ("middle_block.1", "mid_block.attentions.0"),
    ("middle_block.2", "mid_block.resnets.1"),
)
_RIM = {
    "time_embed.0": "time_embedding.linear_1",
    "time_embed.2": "time_embedding.linear_2",
    "label_emb.0.0": "add_embedding.linear_1",
    "label_emb.0.2": "add_embedding.linear_2",
    "input_blocks.0.0": "conv_in",
    "out.0": "conv_norm_out",
    "out.2": "conv_out",
}


def prefixes(config: Mapping[str, Any]) -> dict[str, str]:
    """Map original module prefixes to diffusers' for a U-Net config; inside attention blocks names are the same."""
    found = dict(_RIM)
    for original, ours in (*_down(config), *_MIDDLE, *_up(config)):
        if ".resnets." in ours:
            found.update({f"{original}.{old}": f"{ours}.{new}" for old, new in _RESNET.items()})
        else:
            found[original] = ours
    return found


def _layers(config: Mapping[str, Any]) -> list[int]:
    layers = config["layers_per_block"]
    return [layers] * len(config["block_out_channels"]) if isinstance(layers, int) else list(layers)


def _down(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    number = 1
    for level, (kind, layers) in enumerate(zip(config["down_block_types"], _layers(config), strict=True)):
        for layer in range(layers):
            yield f"input_blocks.{number}.0", f"down_blocks.{level}.resnets.{layer}"
            if "CrossAttn" in kind:
                yield f"input_blocks.{number}.1", f"down_blocks.{level}.attentions.{layer}"
            number += 1
        if level + 1 < len(config["down_block_types"]):
            yield f"input_blocks.{number}.0.op", f"down_blocks.{level}.downsamplers.0.conv"
            number += 1


def _up(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    number = 0
    kinds = config["up_block_types"]
    for level, (kind, layers) in enumerate(zip(kinds, reversed(_layers(config)), strict=True)):
        crossed = "CrossAttn" in kind
        for layer in range(layers + 1):
            yield f"output_blocks.{number}.0", f"up_blocks.{level}.resnets.{layer}"
            if crossed:
                yield f"output_blocks.{number}.1", f"up_blocks.{level}.attentions.{layer}"
            if layer == layers and level + 1 < len(kinds):
                place = 2 if crossed else 1
                yield f"output_blocks.{number}.{place}.conv", f"up_blocks.{level}.upsamplers.0.conv"
            number += 1
