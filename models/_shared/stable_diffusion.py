"""What all Stable Diffusion families do alike: U-Net, AutoencoderKL, CLIP text encoders, the DDPM time of 1000 steps.

A family gives `facts` and `architecture`, and overrides what differs (SDXL: the context, its size ids).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.core.batch import Condition, Geometry
from trainers.core.facts import Facts
from trainers.core.family import SampleSteps, TensorDict, Weights

from . import loading, resolve, single_file, tiny
from .architecture import FOLDER_OF_PART, TOKENIZER_OF_PART, Architecture
from .clip_tokenizer import load_tokenizer
from .published import from_published, lora_metadata, to_published
from .schedulers import make_scheduler
from .text import TextPart, count_tokens, device_of, dtype_of, token_ids

Grid = tuple[int, int, int]


class StableDiffusion:
    """The common family; `facts` and `architecture` are set by each family's class."""

    facts: Facts
    architecture: Architecture
    pipeline_class = "StableDiffusionPipeline"

    def resolve(self, weights: str, *, vae: str | None = None, offline: bool = False) -> Weights:
        """Find every file of `weights`: a folder, a single file, a hub id or "builtin:starter"."""
        return resolve.resolve(weights, self.architecture, vae=vae, offline=offline)

    def load(self, part: str, weights: Weights, *, dtype: torch.dtype, device: torch.device | str) -> nn.Module:
        """Load "denoiser", "vae" or "text", frozen. Parts in `facts.keep_precise` are float32 whatever is asked for."""
        if part == "text":
            encoders = {name: self._load_one(name, weights, dtype, device) for name in self.facts.text_encoders}
            tokenizers = {name: load_tokenizer(weights.folder / TOKENIZER_OF_PART[name]) for name in encoders}
            return TextPart(encoders, tokenizers)
        return self._load_one(part, weights, dtype, device)

    def _load_one(self, part: str, weights: Weights, dtype: torch.dtype, device: torch.device | str) -> nn.Module:
        if part in self.facts.keep_precise:
            dtype = torch.float32
        folder = weights.folder / FOLDER_OF_PART[part]
        if part == "vae" and weights.vae is not None:
            place = weights.vae
            config, state = loading.read_part(place) if place.is_dir() else single_file.read_vae(place, folder)
        elif weights.file is not None:
            place = weights.file
            config, state = single_file.read_part(place, part, folder, self.architecture)
        else:
            place = folder
            config, state = loading.read_part(place)
        return loading.load_module(config, state, dtype=dtype, device=device, where=f"{place} ({part})")

    def encode_pixels(self, vae: Any, pixels: Tensor, eps: Tensor | None) -> Tensor:
        """pixels [B, 3, 1, Y, X] in [-1, 1] -> latents float32 [B, C, 1, H, W]; z = mean + std * eps, then scaled."""
        posterior = vae.encode(pixels[:, :, 0].to(device_of(vae), dtype_of(vae))).latent_dist
        mean = posterior.mean.float()
        latents = mean if eps is None else mean + posterior.std.float() * eps[:, :, 0].to(mean)
        return ((latents - (vae.config.shift_factor or 0.0)) * vae.config.scaling_factor).unsqueeze(2)

    def decode_latents(self, vae: Any, latents: Tensor) -> Tensor:
        """latents [B, C, 1, H, W] -> pixels float32 [B, 3, 1, Y, X] in [-1, 1]."""
        raw = latents[:, :, 0].float() / vae.config.scaling_factor + (vae.config.shift_factor or 0.0)
        return vae.decode(raw.to(device_of(vae), dtype_of(vae))).sample.float().clamp(-1.0, 1.0).unsqueeze(2)

    def encode_text(self, text: Any, captions: Sequence[str]) -> list[Condition]:
        """B captions -> B conditions {"context": [S, D]}: the last layer after its norm, as the reference takes it."""
        name = self.facts.text_encoders[0]
        encoder = text.encoders[name]
        context = encoder(token_ids(text.tokenizers[name], captions, device_of(encoder))).last_hidden_state
        return [{"context": one} for one in context]

    def null_condition(self, text: Any) -> Condition:
        """The encoding of the empty caption, which is also the empty negative prompt of classifier-free guidance."""
        return self.encode_text(text, [""])[0]

    def count_tokens(self, text: Any, caption: str) -> dict[str, tuple[int, int]]:
        """Per text encoder: (tokens the caption has, tokens that fit), without start and end marks."""
        return {name: count_tokens(tokenizer, caption) for name, tokenizer in text.tokenizers.items()}

    def collate(self, conditions: Sequence[Condition], grid: Grid, geometry: Sequence[Geometry]) -> Condition:
        """B single conditions -> one of B. All have one length, and neither grid nor crops add anything."""
        del grid, geometry
        return {name: torch.stack([condition[name] for condition in conditions]) for name in conditions[0]}

    def predict(self, denoiser: nn.Module, x_t: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """x_t [B, C, 1, H, W], t [B] in [0, 1] -> float32 like x_t. The U-Net wants the timestep floor(1000 t)."""
        steps = self.facts.schedule.steps if self.facts.schedule else 1000
        timestep = (t.float() * steps).floor().long().clamp(0, steps - 1)
        dtype = dtype_of(denoiser)
        answer = denoiser(
            x_t[:, :, 0].to(dtype),
            timestep,
            encoder_hidden_states=condition["context"].to(x_t.device, dtype),
            added_cond_kwargs=self._added(condition, x_t.device, dtype),
            return_dict=False,
        )[0]
        return answer.float().unsqueeze(2)

    def _added(self, condition: Condition, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor] | None:
        """What the U-Net gets beside the context; nothing here, sizes and pooled text in SDXL."""
        del condition, device, dtype
        return None

    def to_published(self, state: Mapping[str, Tensor], layout: str) -> TensorDict:
        """Our LoRA names -> "kohya" or "diffusers"; our model names -> "single_file" or "diffusers"."""
        return to_published(state, layout, self.architecture)

    def from_published(self, state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> TensorDict:
        """A LoRA or model in any known layout -> our names; `metadata` of its file may hold diffusers' alpha."""
        return from_published(state, self.architecture, metadata)

    def lora_metadata(self, state: Mapping[str, Tensor], layout: str) -> dict[str, str]:
        """File metadata that a loader of `layout` reads beside the tensors of a LoRA (canonical `state`)."""
        return lora_metadata(state, layout)

    def pipeline(self, weights: Weights, parts: Mapping[str, Any]) -> Any:
        """diffusers' own pipeline around "denoiser", "vae" and, where present, "text"; without a safety checker."""
        import diffusers

        components = self._components(weights, parts)
        return getattr(diffusers, self.pipeline_class)(**components, scheduler=make_scheduler(weights.facts))

    def _components(self, weights: Weights, parts: Mapping[str, Any]) -> dict[str, Any]:
        del weights
        text = parts.get("text")
        return {
            "unet": parts["denoiser"],
            "vae": parts["vae"],
            "text_encoder": text.encoders["text_encoder"] if text else None,
            "tokenizer": text.tokenizers["text_encoder"] if text else None,
            "safety_checker": None,
            "feature_extractor": None,
            "requires_safety_checker": False,
        }

    def sample(
        self, pipeline: Any, condition: Condition, negative: Condition, eps: Tensor, settings: SampleSteps
    ) -> Tensor:
        """Run the pipeline from eps [B, C, 1, H, W] with collated conditions -> clean latents [B, C, 1, H, W]."""
        height, width = (size * self.facts.stride_xy for size in eps.shape[-2:])

        def after_step(_pipeline: Any, _step: int, _timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
            settings.on_step()
            return values

        latents = pipeline(
            **self._prompts(condition, negative),
            latents=eps[:, :, 0],
            height=height,
            width=width,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance,
            callback_on_step_end=after_step,
            output_type="latent",
        ).images
        return latents.unsqueeze(2)

    def _prompts(self, condition: Condition, negative: Condition) -> dict[str, Tensor]:
        """Collated conditions as the pipeline's own arguments."""
        return {"prompt_embeds": condition["context"], "negative_prompt_embeds": negative["context"]}

    def write_single_file(self, weights: Weights, file: Path, *, state: Mapping[str, Tensor] | None = None) -> Path:
        """Write the model, or `state` in its place, as one file in the original layout, with markers and configs."""
        return single_file.write(weights, file, self.architecture, state=state)

    def markers(self, weights: Weights) -> TensorDict:
        """Empty tensors that go into a single file beside `to_published`'s and tell what the weights predict."""
        return single_file.markers(weights.facts)

    def write_configs(self, weights: Weights, file: Path) -> Path | None:
        """Put configs and tokenizers beside a single file whose model has not the family's shapes; returns where."""
        return single_file.write_configs(weights, file, self.architecture)

    def tiny(self, folder: Path, *, variant: str = "") -> Path:
        """Write a random instance in diffusers' layout: the same blocks, narrow; `variant` may be "eps" or "v"."""
        return tiny.write(folder, self.architecture, variant=variant)
