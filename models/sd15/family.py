"""Stable Diffusion 1.x: the common family as it is."""

from __future__ import annotations

from pathlib import Path

from models._shared.architecture import Architecture, TextForm
from models._shared.stable_diffusion import StableDiffusion

from .facts import FACTS


class Family(StableDiffusion):
    """Stable Diffusion 1.4, 1.5 and their fine-tunes."""

    facts = FACTS
    architecture = Architecture(
        facts=FACTS,
        configs=Path(__file__).with_name("configs"),
        texts={"text_encoder": TextForm("cond_stage_model.transformer.")},
    )
