"""Facts of Stable Diffusion 2.x. The 768 models predict v, the 512 "base" models eps; the weights decide."""

from __future__ import annotations

from models._shared import unet_facts
from trainers.core.facts import Facts, NoiseSchedule, TextLimit

FACTS = Facts(
    name="sd2",
    title="Stable Diffusion 2.1",
    prediction="v",
    path="ddpm",
    latent_channels=4,
    stride_xy=8,
    size_multiple=64,
    native_area=768 * 768,
    schedule=NoiseSchedule(),
    text_limits=(TextLimit("text_encoder", 77),),
    text_encoders=("text_encoder",),
    blocks=unet_facts.block_names(4, 4),
    targets=unet_facts.TARGETS,
    text_targets=unet_facts.TEXT_TARGETS,
    keep_precise=("vae",),
    muon_excluded=unet_facts.FIRST_AND_LAST,
    parameters={"denoiser": 865_910_724, "vae": 83_653_863, "text_encoder": 340_387_840},
    # Saved for the backward pass per latent token in bf16 with fused attention, and with checkpointing what one block
    # recomputes; counted from the tensors autograd keeps on torch 2.13's meta device. float32 takes twice as much.
    bytes_per_token={"plain": 205_000.0, "checkpointed": 53_400.0},
    signatures=("denoiser=unet", "inputs=4", "projection=linear", "pooled=no"),
    default_weights="stabilityai/stable-diffusion-2-1",
    modelspec="stable-diffusion-v2-768-v",
    licence="CreativeML Open RAIL++-M",
    sources=(
        "Rombach et al. 2022, High-Resolution Image Synthesis with Latent Diffusion Models, arXiv:2112.10752",
        "https://github.com/Stability-AI/stablediffusion",
    ),
)
