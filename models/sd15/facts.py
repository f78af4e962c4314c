"""Facts of Stable Diffusion 1.x (1.4, 1.5 and their fine-tunes)."""

from __future__ import annotations

from models._shared import unet_facts
from trainers.core.facts import Facts, NoiseSchedule, TextLimit

FACTS = Facts(
    name="sd15",
    title="Stable Diffusion 1.5",
    prediction="eps",
    path="ddpm",
    latent_channels=4,
    stride_xy=8,
    size_multiple=64,
    native_area=512 * 512,
    schedule=NoiseSchedule(),
    text_limits=(TextLimit("text_encoder", 77),),
    text_encoders=("text_encoder",),
    blocks=unet_facts.block_names(4, 4),
    targets=unet_facts.TARGETS,
    text_targets=unet_facts.TEXT_TARGETS,
    keep_precise=("vae",),
    muon_excluded=unet_facts.FIRST_AND_LAST,
    parameters={"denoiser": 859_520_964, "vae": 83_653_863, "text_encoder": 123_060_480},
    # Saved for the backward pass per latent token in bf16 with fused attention, and with checkpointing what one block
    # recomputes; counted from the tensors autograd keeps on torch 2.13's meta device. float32 takes twice as much.
    bytes_per_token={"plain": 206_000.0, "checkpointed": 53_400.0},
    signatures=("denoiser=unet", "inputs=4", "projection=conv", "pooled=no"),
    default_weights="stable-diffusion-v1-5/stable-diffusion-v1-5",
    modelspec="stable-diffusion-v1",
    licence="CreativeML Open RAIL-M",
    sources=(
        "Rombach et al. 2022, High-Resolution Image Synthesis with Latent Diffusion Models, arXiv:2112.10752",
        "https://huggingface.co/stable-diffusion-v1-5/stable-diffusion-v1-5",
    ),
)
