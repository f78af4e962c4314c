"""Facts of the starter model: Stable Diffusion's architecture, small, with v-prediction and zero terminal SNR."""

from __future__ import annotations

from models._shared import unet_facts
from trainers.core.facts import Facts, NoiseSchedule, TextLimit

FACTS = Facts(
    name="starter",
    title="the starter model",
    prediction="v",
    path="ddpm",
    latent_channels=8,
    stride_xy=8,
    size_multiple=32,
    native_area=128 * 128,
    schedule=NoiseSchedule(zero_terminal_snr=True),
    text_limits=(TextLimit("text_encoder", 32),),
    text_encoders=("text_encoder",),
    blocks=unet_facts.block_names(3, 3),
    targets=unet_facts.TARGETS,
    text_targets=unet_facts.TEXT_TARGETS,
    keep_precise=("vae",),
    muon_excluded=unet_facts.FIRST_AND_LAST,
    parameters={"denoiser": 10_939_016, "vae": 1_654_555, "text_encoder": 898_240},
    signatures=("denoiser=unet", "inputs=8", "pooled=no"),
    default_weights="builtin:starter",
    modelspec="trainers-starter",
    licence="Apache-2.0",
    sources=("models/starter/README.md",),
)
