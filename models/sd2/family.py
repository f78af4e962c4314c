"""Stable Diffusion 2.x: the common family; its text encoder ends one layer early, by its config."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from models._shared.architecture import Architecture, TextForm
from models._shared.stable_diffusion import StableDiffusion
from trainers.core.family import Weights

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

    def resolve(self, weights: str, *, vae: str | None = None, offline: bool = False) -> Weights:
        """Find every file of `weights`; the eps models have a name of their own in file metadata."""
        found = super().resolve(weights, vae=vae, offline=offline)
        if found.facts.prediction != "eps":
            return found
        return dataclasses.replace(found, facts=dataclasses.replace(found.facts, modelspec="stable-diffusion-v2-512"))
