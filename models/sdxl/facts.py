"""Facts of Stable Diffusion XL base 1.0 and its fine-tunes."""

from __future__ import annotations

from models._shared import unet_facts
from trainers.core.facts import Facts, NoiseSchedule, TextLimit

FACTS = Facts(
    name="sdxl",
    title="Stable Diffusion XL",
    prediction="eps",
    path="ddpm",
    latent_channels=4,
    stride_xy=8,
    size_multiple=64,
    native_area=1024 * 1024,
    schedule=NoiseSchedule(),
    text_limits=(TextLimit("text_encoder", 77), TextLimit("text_encoder_2", 77)),
    text_encoders=("text_encoder", "text_encoder_2"),
    blocks=unet_facts.block_names(3, 3),
    targets={**unet_facts.TARGETS, "all": unet_facts.TARGETS["all"] + unet_facts.SIZE_EMBEDDING},
    text_targets=unet_facts.TEXT_TARGETS,
    keep_precise=("vae",),  # its activations overflow float16: black pictures
    muon_excluded=unet_facts.FIRST_AND_LAST,
    parameters={
        "denoiser": 2_567_463_684,
        "vae": 83_653_863,
        "text_encoder": 123_060_480,
        "text_encoder_2": 694_659_840,
    },
    # Saved for the backward pass per latent token in bf16 with fused attention, and with checkpointing what one block
    # recomputes; counted from the tensors autograd keeps on torch 2.13's meta device. float32 takes twice as much.
    bytes_per_token={"plain": 371_000.0, "checkpointed": 43_700.0},
    signatures=("denoiser=unet", "inputs=4", "projection=linear", "pooled=yes"),
    default_weights="stabilityai/stable-diffusion-xl-base-1.0",
    modelspec="stable-diffusion-xl-v1-base",
    licence="CreativeML Open RAIL++-M",
    sources=(
        "Podell et al. 2023, Improving Latent Diffusion Models for High-Resolution Image Synthesis, arXiv:2307.01952",
        "https://huggingface.co/stabilityai/stable-diffusion-xl-base-1.0",
    ),
)
