"""Attention back ends. PyTorch's own (SDPA) picks the best kernel by itself, but for bf16 on the CPU: see `BySize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainers.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_SMALL = 1 << 24
"""Entries of an attention table (samples x heads x queries x keys) up to which it is kept whole: 32 MiB in bf16."""


class BySize:
    """Attention of one layer for bf16 on a CPU: the plain formula while its table is small, SDPA's kernel beyond.

    The kernel never holds the table, but on a CPU it takes 1.5 to 3 times as long in bf16 as two matrix products and a
    softmax. The price is memory, the table of each layer until the backward pass (of one block with gradient
    checkpointing), and digits: the table is rounded to bf16. Where its entries spread by 4, gradients are off by 1.2 %
    instead of the kernel's 0.5 %. Who minds sets "sdpa". Both ways are diffusers' own processors.
    """

    def __init__(self) -> None:
        from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

        self._plain, self._kernel = AttnProcessor(), AttnProcessor2_0()

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """hidden_states [B, L, D] (or [B, D, H, W]) attends to encoder_hidden_states [B, S, E], or to itself."""
        queries = hidden_states.shape[1] if hidden_states.ndim == 3 else hidden_states[0, 0].numel()
        keys = queries if encoder_hidden_states is None else encoder_hidden_states.shape[1]
        small = hidden_states.shape[0] * attn.heads * queries * keys <= _SMALL
        processor = self._plain if small else self._kernel
        return processor(attn, hidden_states, encoder_hidden_states, attention_mask)


def use_attention(denoiser: Any, wanted: str) -> str:
    """Make the denoiser use a back end; returns the name of the one in use. "auto" is PyTorch's SDPA nearly always."""
    if wanted == "auto" and _is_half_on_cpu(denoiser) and hasattr(denoiser, "set_attn_processor"):
        denoiser.set_attn_processor(BySize())
        return "by size"
    if wanted in ("auto", "sdpa"):
        return "sdpa"
    if not hasattr(denoiser, "set_attn_processor"):
        raise UserError(f'this model has no "{wanted}" attention', where="compute.attention", remedy='use "auto"')
    if wanted == "eager":
        from diffusers.models.attention_processor import AttnProcessor

        denoiser.set_attn_processor(AttnProcessor())
        return "eager"
    return _use_xformers(denoiser)


def _is_half_on_cpu(denoiser: Any) -> bool:
    import torch

    first = next(denoiser.parameters())
    return bool(first.device.type == "cpu" and first.dtype == torch.bfloat16)


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
