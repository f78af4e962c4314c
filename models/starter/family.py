"""The starter model: the common Stable Diffusion family, small."""

from __future__ import annotations

from pathlib import Path

from models._shared.architecture import Architecture, TextForm
from models._shared.stable_diffusion import StableDiffusion

from .facts import FACTS

_WEIGHTS = Path(__file__).parent / "weights"


class Family(StableDiffusion):
    """The embedded model, `builtin:starter`, and models trained from it."""

    facts = FACTS
    architecture = Architecture(
        facts=FACTS,
        configs=_WEIGHTS,
        texts={"text_encoder": TextForm("cond_stage_model.transformer.")},
    )
