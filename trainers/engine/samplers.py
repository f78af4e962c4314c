"""Ways of sampling a preview. "auto" keeps the one that comes with the model; all are deterministic."""

from __future__ import annotations

from typing import Any

from trainers.core.errors import UserError

_CLASSES = {
    "ddim": "DDIMScheduler",
    "euler": "EulerDiscreteScheduler",
    "dpmpp_2m": "DPMSolverMultistepScheduler",
    "unipc": "UniPCMultistepScheduler",
}


def use_sampler(pipeline: Any, wanted: str) -> None:
    """Replace the scheduler of a pipeline by another that keeps its noise schedule and prediction kind."""
    if wanted == "auto":
        return
    import diffusers

    present = pipeline.scheduler
    if type(present).__name__.startswith("FlowMatch") and wanted == "ddim":
        raise UserError("DDIM does not sample this kind of model", where="preview.sampler", remedy='use "auto"')
    pipeline.scheduler = getattr(diffusers, _CLASSES[wanted]).from_config(present.config)
