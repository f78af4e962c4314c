"""Writes the untrained starter model: a diffusers folder of Stable Diffusion's shape.

``python -m models.starter.init --captions DIR --vae VAE_DIR --out DIR --seed 1``
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from models.starter.tokenizer import MAX_LENGTH, make_tokenizer, save_tokenizer

TEXT_WIDTH = 160
TEXT_CONFIG: dict[str, int | str] = {
    "hidden_size": TEXT_WIDTH,
    "intermediate_size": 4 * TEXT_WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "max_position_embeddings": MAX_LENGTH,
    "projection_dim": TEXT_WIDTH,
    "hidden_act": "quick_gelu",
}
UNET_CONFIG: dict[str, object] = {
    "sample_size": 16,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (64, 128, 192),
    "layers_per_block": 1,
    "attention_head_dim": (1, 2, 3),
    "cross_attention_dim": TEXT_WIDTH,
    "norm_num_groups": 16,
}
"""``attention_head_dim`` is, in diffusers' spelling, the number of heads: 64 channels each."""

SCHEDULER_CONFIG: dict[str, object] = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "prediction_type": "v_prediction",
    "rescale_betas_zero_snr": True,
    "timestep_spacing": "trailing",
    "clip_sample": False,
    "set_alpha_to_one": True,
    "steps_offset": 1,
}


def make_text_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """Return an untrained text encoder, ``[B, 32]`` token numbers to ``[B, 32, TEXT_WIDTH]``."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **TEXT_CONFIG,
    )
    return CLIPTextModel(config)


def make_unet(latent_channels: int, **changes: object) -> UNet2DConditionModel:
    """Return an untrained denoiser on ``[B, latent_channels, 16, 16]``."""
    config = {**UNET_CONFIG, **changes}
    return UNet2DConditionModel(in_channels=latent_channels, out_channels=latent_channels, **config)


def make_pipeline(captions: Path, vae_dir: Path, seed: int) -> StableDiffusionPipeline:
    """Build all parts; the weights depend on the seed alone."""
    tokenizer = make_tokenizer(captions)
    vae = AutoencoderKL.from_pretrained(vae_dir)
    torch.manual_seed(seed)
    text_encoder = make_text_encoder(tokenizer)
    torch.manual_seed(seed + 1)
    unet = make_unet(vae.config.latent_channels)
    return StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=DDIMScheduler(**SCHEDULER_CONFIG),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def main(
    captions: Annotated[Path, typer.Option(help="folder of caption files")],
    vae: Annotated[Path, typer.Option(help="folder of the trained autoencoder")],
    out: Annotated[Path, typer.Option(help="folder of the model")],
    seed: Annotated[int, typer.Option(help="seed of the weights")] = 1,
) -> None:
    """Write the untrained model in half precision."""
    pipeline = make_pipeline(captions, vae, seed)
    pipeline.to(dtype=torch.float16).save_pretrained(out)
    save_tokenizer(pipeline.tokenizer, out / "tokenizer")
    counts = {
        name: sum(p.numel() for p in getattr(pipeline, name).parameters()) / 1e6
        for name in ("unet", "text_encoder", "vae")
    }
    typer.echo(", ".join(f"{name} {count:.2f} M" for name, count in counts.items()))
    typer.echo(f"vocabulary {len(pipeline.tokenizer)}, written to {out}")


if __name__ == "__main__":
    typer.run(main)
