"""Attention back ends. PyTorch's own (SDPA) picks the best kernel by itself; the others are for comparison."""

from __future__ import annotations

from typing import Any

from trainers.core.errors import UserError


def use_attention(denoiser: Any, wanted: str) -> str:
    """Make the denoiser use a back end; returns the name of the one in use. "auto" is PyTorch's SDPA."""
    if wanted in ("auto", "sdpa"):
        return "sdpa"
    if not hasattr(denoiser, "set_attn_processor"):
        raise UserError(f'this model has no "{wanted}" attention', where="compute.attention", remedy='use "auto"')
    if wanted == "eager":
        from diffusers.models.attention_processor import AttnProcessor

        denoiser.set_attn_processor(AttnProcessor())
        return "eager"
    return _use_xformers(denoiser)


def _use_xformers(denoiser: Any) -> str:
    """xformers is tried once here, so that a build that does not fit this torch is known before the first step."""
    try:
        denoiser.enable_xformers_memory_efficient_attention()
    except (ImportError, ModuleNotFoundError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"xformers cannot be used here ({str(error).splitlines()[0]})",
            where="compute.attention",
            remedy='use "auto": PyTorch\'s own attention saves as much memory',
        ) from error
    return "xformers"
