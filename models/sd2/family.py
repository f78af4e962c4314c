"""Stable Diffusion 2.x: the common family; its text encoder ends one layer early, by its config."""

from __future__ import annotations

from pathlib import Path

from models._shared.architecture import Architecture, TextForm
from models._shared.stable_diffusion import StableDiffusion

from .facts import FACTS


class Family(StableDiffusion):
    """Stable Diffusion 2.0 and 2.1, 512 base (eps) or 768 (v), and their fine-tunes."""

    facts = FACTS
    architecture = Architecture(
        facts=FACTS,
        configs=Path(__file__).with_name("configs"),
        texts={"text_encoder": TextForm("cond_stage_model.model.", open_clip=True, spare_layer=True)},
        telltale="model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias",
        threshold=0.09,
    )
