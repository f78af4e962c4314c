"""Names of the autoencoder's modules: original (ldm) <-> diffusers, from the config, at any width.

The original numbers the decoder's levels from the finest, diffusers from the coarsest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_ATTENTION = {"norm": "group_norm", "q": "to_q", "k": "to_k", "v": "to_v", "proj_out": "to_out.0"}
_SAME = ("encoder.conv_in", "encoder.conv_out", "decoder.conv_in", "decoder.conv_out")
ONE_BY_ONE = tuple(
    f"{side}.mid.attn_1.{name}.weight" for side in ("encoder", "decoder") for name in ("q", "k", "v", "proj_out")
)
"""Weights that the original keeps as 1x1 convolutions [O, I, 1, 1] and diffusers as matrices [O, I]."""


def prefixes(config: Mapping[str, Any]) -> dict[str, str]:
    """Map original module prefixes to diffusers' for an AutoencoderKL config."""
    found = {name: name for name in _SAME}
    found |= {"quant_conv": "quant_conv", "post_quant_conv": "post_quant_conv"}
    found |= {f"{side}.norm_out": f"{side}.conv_norm_out" for side in ("encoder", "decoder")}
    for original, ours in (*_encoder(config), *_decoder(config), *_middles(config)):
        if ".resnets." in ours:
            found |= {f"{original}.{name}": f"{ours}.{name}" for name in ("norm1", "conv1", "norm2", "conv2")}
            found[f"{original}.nin_shortcut"] = f"{ours}.conv_shortcut"
        else:
            found[original] = ours
    return found


def _encoder(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    levels = len(config["block_out_channels"])
    for level in range(levels):
        for layer in range(config["layers_per_block"]):
            yield f"encoder.down.{level}.block.{layer}", f"encoder.down_blocks.{level}.resnets.{layer}"
        if level + 1 < levels:
            yield f"encoder.down.{level}.downsample.conv", f"encoder.down_blocks.{level}.downsamplers.0.conv"


def _decoder(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    levels = len(config["block_out_channels"])
    for level in range(levels):
        turned = levels - 1 - level
        for layer in range(config["layers_per_block"] + 1):
            yield f"decoder.up.{turned}.block.{layer}", f"decoder.up_blocks.{level}.resnets.{layer}"
        if level + 1 < levels:
            yield f"decoder.up.{turned}.upsample.conv", f"decoder.up_blocks.{level}.upsamplers.0.conv"


def _middles(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for side in ("encoder", "decoder"):
        yield f"{side}.mid.block_1", f"{side}.mid_block.resnets.0"
        yield f"{side}.mid.block_2", f"{side}.mid_block.resnets.1"
        if config.get("mid_block_add_attention", True):
            for old, new in _ATTENTION.items():
                yield f"{side}.mid.attn_1.{old}", f"{side}.mid_block.attentions.0.{new}"
