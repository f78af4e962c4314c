"""The starter model: the common Stable Diffusion family, small."""

from __future__ import annotations

from pathlib import Path

from models._shared.architecture import Architecture, TextForm
from models._shared.stable_diffusion import StableDiffusion

from .facts import FACTS

_HOME = Path(__file__).parent
_WEIGHTS = _HOME / "weights"


class Family(StableDiffusion):
    """The embedded model, `builtin:starter`, and models trained from it."""

    facts = FACTS
    architecture = Architecture(
        facts=FACTS,
        configs=_WEIGHTS if (_WEIGHTS / "unet" / "config.json").is_file() else _HOME / "configs",
        texts={"text_encoder": TextForm("cond_stage_model.transformer.")},
    )
