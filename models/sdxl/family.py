"""Stable Diffusion XL: two text encoders, a pooled text vector, and ids of the picture's size and crop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models._shared.architecture import Architecture, TextForm
from models._shared.resolve import read_json
from models._shared.stable_diffusion import Grid, StableDiffusion
from models._shared.text import device_of, token_ids
from trainers.core.batch import Condition, Geometry
from trainers.core.family import Weights

from .facts import FACTS


class Family(StableDiffusion):
    """SDXL base 1.0 and its fine-tunes."""

    facts = FACTS
    architecture = Architecture(
        facts=FACTS,
        configs=Path(__file__).with_name("configs"),
        texts={
            "text_encoder": TextForm("conditioner.embedders.0.transformer."),
            "text_encoder_2": TextForm("conditioner.embedders.1.model.", open_clip=True, wrapped=True),
        },
        kohya_original=True,
    )
    pipeline_class = "StableDiffusionXLPipeline"

    def encode_text(self, text: Any, captions: Sequence[str]) -> list[Condition]:
        """B captions -> B conditions {"context": [S, D1 + D2], "pooled": [P]}.

        The context joins the layer before the last of both encoders, without the final norm; the pooled vector is the
        second encoder's projected end token.
        """
        layers: list[Tensor] = []
        pooled: Any = None
        for name, encoder in text.encoders.items():
            ids = token_ids(text.tokenizers[name], captions, device_of(encoder))
            answer = encoder(ids, output_hidden_states=True)
            layers.append(answer.hidden_states[-2])
            pooled = answer.text_embeds if name == "text_encoder_2" else pooled
        context = torch.cat(layers, dim=-1)
        return [{"context": one, "pooled": vector} for one, vector in zip(context, pooled, strict=True)]

    def collate(self, conditions: Sequence[Condition], grid: Grid, geometry: Sequence[Geometry]) -> Condition:
        """Stack, and add "time_ids" [B, 6]: original height and width, crop top and left, target height and width."""
        stride = self.facts.stride_xy
        size = (grid[1] * stride, grid[2] * stride)
        whole = Geometry(original=size, crop=(0, 0), target=size)
        rows = [(*one.original, *one.crop, *one.target) for one in (geometry or [whole] * len(conditions))]
        together = dict(super().collate(conditions, grid, geometry))
        together["time_ids"] = torch.tensor(rows, dtype=torch.float32)
        return together

    def _added(self, condition: Condition, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor] | None:
        return {
            "text_embeds": condition["pooled"].to(device, dtype),
            "time_ids": condition["time_ids"].to(device),
        }

    def _components(self, weights: Weights, parts: Mapping[str, Any]) -> dict[str, Any]:
        text = parts.get("text")
        index = read_json(weights.folder / "model_index.json")
        return {
            "unet": parts["denoiser"],
            "vae": parts["vae"],
            "text_encoder": text.encoders["text_encoder"] if text else None,
            "text_encoder_2": text.encoders["text_encoder_2"] if text else None,
            "tokenizer": text.tokenizers["text_encoder"] if text else None,
            "tokenizer_2": text.tokenizers["text_encoder_2"] if text else None,
            "force_zeros_for_empty_prompt": bool(index.get("force_zeros_for_empty_prompt", True)),
            "add_watermarker": False,
        }

    def _prompts(self, condition: Condition, negative: Condition) -> dict[str, Tensor]:
        """Collated conditions as the pipeline's own arguments; the size ids it makes itself."""
        return {
            **super()._prompts(condition, negative),
            "pooled_prompt_embeds": condition["pooled"],
            "negative_pooled_prompt_embeds": negative["pooled"],
        }
