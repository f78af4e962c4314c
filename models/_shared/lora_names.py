"""Names of LoRA modules: ours <-> kohya's underscored names, and the prefixes other programs use.

kohya: `lora_unet_`, `lora_te_` (one text encoder) or `lora_te1_`, `lora_te2_` (two), then the path with underscores.
For SDXL the U-Net path is the original one (`input_blocks_4_1_...`), for SD 1 and 2 diffusers' own.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from . import ldm_unet
from .architecture import Architecture
from .loading import text_name
from .single_file import renamed

_BLOCK_INSIDE = re.compile(
    r"transformer_blocks_(\d+)_(attn[12])_(to_q|to_k|to_v|to_out)(_0)?$|transformer_blocks_(\d+)_ff_net_(0_proj|2)$"
)
_TEXT_INSIDE = re.compile(r"(?:text_model_)?encoder_layers_(\d+)_(self_attn|mlp)_(\w+)$")
_KOHYA_TEXT = {"lora_te_": "text_encoder", "lora_te1_": "text_encoder", "lora_te2_": "text_encoder_2"}
_KOHYA_UNET = ("lora_unet_", "lycoris_")
_DOTTED = {
    "unet.": "denoiser",
    "denoiser.": "denoiser",
    "diffusion_model.": "denoiser",
    "base_model.model.unet.": "denoiser",
    "base_model.model.": "denoiser",
    "text_encoder.": "text_encoder",
    "text_encoder_2.": "text_encoder_2",
    "text_encoders.clip_l.transformer.": "text_encoder",
    "text_encoders.clip_g.transformer.": "text_encoder_2",
}
_UNET_TOPS = ("down_blocks.", "mid_block.", "up_blocks.", "conv_in", "conv_out", "time_embedding.", "add_embedding.")


def to_kohya(part: str, path: str, architecture: Architecture) -> str:
    """Our part and module path -> kohya's module name."""
    if part == "denoiser":
        original = renamed(path, _originals(str(architecture.configs))) if architecture.kohya_original else path
        return "lora_unet_" + (original or path).replace(".", "_")
    single = len(architecture.facts.text_encoders) == 1
    prefix = "lora_te_" if single else {"text_encoder": "lora_te1_", "text_encoder_2": "lora_te2_"}[part]
    return prefix + text_name(path, True).replace(".", "_")


def to_diffusers(part: str, path: str) -> str:
    """Our part and module path -> diffusers' pipeline name; text encoders with the prefix that every version reads."""
    if part == "denoiser":
        return f"unet.{path}"
    return f"{part}.{text_name(path, True)}"


def from_any(module: str, architecture: Architecture) -> tuple[str, str] | None:
    """Any known module name -> (part, our module path), or None."""
    for prefix, part in _KOHYA_TEXT.items():
        if module.startswith(prefix) and part in architecture.texts:
            return _text_from_underscored(part, module.removeprefix(prefix), architecture)
    for prefix in _KOHYA_UNET:
        if module.startswith(prefix):
            return _unet_from_underscored(module.removeprefix(prefix), architecture)
    for prefix in sorted(_DOTTED, key=len, reverse=True):
        if module.startswith(prefix) and (part := _DOTTED[prefix]) in architecture.parts:
            return _from_dotted(part, module.removeprefix(prefix), architecture)
    return ("denoiser", module) if module.startswith(_UNET_TOPS) else None


def _from_dotted(part: str, path: str, architecture: Architecture) -> tuple[str, str] | None:
    if part != "denoiser":
        return part, text_name(path, architecture.texts[part].wrapped)
    path = re.sub(r"\.processor\.(to_[qkv]|to_out)$", lambda found: "." + _with_zero(found[1]), path)
    if path.startswith(_UNET_TOPS):
        return part, path
    ours = renamed(path, _ours(str(architecture.configs)))
    return None if ours is None else (part, ours)


def _with_zero(name: str) -> str:
    return "to_out.0" if name == "to_out" else name


def _text_from_underscored(part: str, name: str, architecture: Architecture) -> tuple[str, str] | None:
    if name in ("text_projection", "text_model_text_projection"):
        return part, "text_projection"
    found = _TEXT_INSIDE.match(name)
    if not found:
        return None
    return part, text_name(f"encoder.layers.{found[1]}.{found[2]}.{found[3]}", architecture.texts[part].wrapped)


def _unet_from_underscored(name: str, architecture: Architecture) -> tuple[str, str] | None:
    known = _underscored_names(str(architecture.configs))
    if name in known:
        return "denoiser", known[name]
    block, mark, inside = name.partition("_transformer_blocks_")
    if not mark:
        block, mark, inside = name.partition("_proj_")
    path = known.get(block)
    rest = _inside_attention(mark[1:] + inside)
    return None if path is None or rest is None else ("denoiser", f"{path}.{rest}")


def _inside_attention(name: str) -> str | None:
    if name in ("proj_in", "proj_out"):
        return name
    found = _BLOCK_INSIDE.match(name)
    if not found:
        return None
    if found[5] is not None:
        return f"transformer_blocks.{found[5]}.ff.net.{found[6].replace('_', '.')}"
    return f"transformer_blocks.{found[1]}.{found[2]}.{_with_zero(found[3])}"


@lru_cache(maxsize=16)
def _ours(configs: str) -> dict[str, str]:
    """Original module prefixes -> ours, for the U-Net config in a folder of configs."""
    return ldm_unet.prefixes(json.loads((Path(configs) / "unet" / "config.json").read_text("utf-8")))


@lru_cache(maxsize=16)
def _originals(configs: str) -> dict[str, str]:
    """Our module prefixes -> the original ones."""
    return {ours: theirs for theirs, ours in _ours(configs).items()}


@lru_cache(maxsize=16)
def _underscored_names(configs: str) -> dict[str, str]:
    """Underscored module prefixes, original and diffusers', -> ours."""
    names = _ours(configs)
    return {theirs.replace(".", "_"): ours for theirs, ours in names.items()} | {
        ours.replace(".", "_"): ours for ours in names.values()
    }
