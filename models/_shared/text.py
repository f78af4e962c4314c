"""The text part of a model: CLIP encoders with their tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class TextPart(nn.Module):
    """Text encoders by part name ("text_encoder", "text_encoder_2") and the tokenizer of each."""

    def __init__(self, encoders: Mapping[str, nn.Module], tokenizers: Mapping[str, Any]) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(dict(encoders))
        self.tokenizers: dict[str, Any] = dict(tokenizers)


def token_ids(tokenizer: Any, captions: Sequence[str], device: torch.device) -> Tensor:
    """B captions -> ids [B, S], cut and padded to the tokenizer's length as diffusers' pipelines do, unmasked."""
    batch = tokenizer(
        list(captions),
        padding="max_length",
        max_length=tokenizer.model_max_length,
        truncation=True,
        return_tensors="pt",
    )
    return batch.input_ids.to(device)


def count_tokens(tokenizer: Any, caption: str) -> tuple[int, int]:
    """Return (tokens the caption has, tokens that fit), without the start and end marks."""
    ids = tokenizer(caption, add_special_tokens=False, truncation=False, verbose=False).input_ids
    return len(ids), tokenizer.model_max_length - 2


def device_of(module: nn.Module) -> torch.device:
    """Return where a module's first parameter lies."""
    return next(module.parameters()).device


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the number type of a module's first parameter: for these networks, of what takes the input."""
    return next(module.parameters()).dtype
