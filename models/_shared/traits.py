"""Tell model families apart: a few traits, read from a folder's config or from the names and shapes in a single file.

A family's `facts.signatures` are traits it must have, e.g. "projection=linear". They hold at any width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.core import discover
from trainers.core.facts import Facts

Traits = Mapping[str, str]
UNET = "model.diffusion_model."

_OTHER_KINDS = (
    ("lora", "a LoRA file, not a base model"),
    ("double_blocks.", "a FLUX or HunyuanVideo file"),
    ("joint_blocks.", "a Stable Diffusion 3 file"),
    ("control_model.", "a ControlNet"),
    ("string_to_param", "a textual-inversion embedding"),
)


def of_config(unet: Mapping[str, Any]) -> Traits:
    """Read the traits from a diffusers `unet/config.json`."""
    return {
        "denoiser": "unet" if unet.get("_class_name") == "UNet2DConditionModel" else str(unet.get("_class_name")),
        "inputs": str(unet.get("in_channels", 4)),
        "projection": "linear" if unet.get("use_linear_projection") else "conv",
        "pooled": "yes" if unet.get("addition_embed_type") == "text_time" else "no",
    }


def of_shapes(shapes: Mapping[str, tuple[int, ...]]) -> Traits:
    """Read the traits from the tensors of a single file in the original (A1111, ComfyUI) layout."""
    first = shapes.get(UNET + "input_blocks.0.0.weight")
    if first is None:
        return {"denoiser": _other_kind(shapes)}
    projections = [
        len(shape) for name, shape in shapes.items() if name.startswith(UNET) and name.endswith(".proj_in.weight")
    ]
    return {
        "denoiser": "unet",
        "inputs": str(first[1]),
        "projection": "linear" if projections and projections[0] == 2 else "conv",
        "pooled": "yes" if UNET + "label_emb.0.0.weight" in shapes else "no",
        "refiner": "yes" if "conditioner.embedders.0.model.token_embedding.weight" in shapes else "no",
    }


def belongs(traits: Traits, facts: Facts) -> bool:
    """Tell whether a model with these traits is of this family."""
    needed = dict(signature.split("=", 1) for signature in facts.signatures)
    return traits.get("refiner") != "yes" and all(traits.get(name) == value for name, value in needed.items())


def describe(traits: Traits) -> str:
    """Say what a model with these traits is, in the words a person would use."""
    if traits["denoiser"] != "unet":
        return traits["denoiser"]
    if traits.get("refiner") == "yes":
        return "the SDXL refiner, which is not trained by itself here"
    for name in discover.names("models"):
        facts = discover.load("models", name, "facts").FACTS
        if facts.signatures and belongs(traits, facts):
            return f"{facts.title} (family {facts.name})"
    if traits["inputs"] == "9":
        return "an inpainting model (9 input channels)"
    return f"a model of an unknown family ({', '.join(f'{name} {value}' for name, value in traits.items())})"


def _other_kind(shapes: Mapping[str, tuple[int, ...]]) -> str:
    for part, words in _OTHER_KINDS:
        if any(part in name for name in shapes):
            return words
    if any(name.startswith(("first_stage_model.", "decoder.")) for name in shapes):
        return "a VAE alone, without a denoiser"
    if any(name.startswith(("down_blocks.", "unet.")) for name in shapes):
        return "a U-Net in diffusers naming; give the folder it belongs to"
    return "no image model that is known here"
