"""What is known of a model family without loading it: a record, free of torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PredictionKind = Literal["eps", "v", "velocity", "x0"]
PathKind = Literal["ddpm", "rectified"]


@dataclass(frozen=True)
class NoiseSchedule:
    """The discrete DDPM schedule of a family on path "ddpm". Ho et al. 2020."""

    steps: int = 1000
    beta_start: float = 0.00085
    beta_end: float = 0.012
    kind: Literal["scaled_linear", "linear", "squaredcos_cap_v2"] = "scaled_linear"
    zero_terminal_snr: bool = False


@dataclass(frozen=True)
class TextLimit:
    """How one text encoder cuts: `tokens` in all, with `special` of them for start and end marks."""

    encoder: str
    tokens: int
    special: int = 2


@dataclass(frozen=True)
class Facts:
    """One model family. Lengths in pixels, latents or tokens; parameter counts of the published architecture."""

    name: str
    title: str
    prediction: PredictionKind
    path: PathKind
    latent_channels: int
    stride_xy: int
    size_multiple: int
    native_area: int
    schedule: NoiseSchedule | None = None
    stride_t: int = 1
    frames: str = "1"
    fps: float | None = None
    modalities: tuple[str, ...] = ("image",)
    time_shift: tuple[tuple[int, float], ...] = ()
    text_limits: tuple[TextLimit, ...] = ()
    text_encoders: tuple[str, ...] = ()
    denoiser: str = "unet"
    blocks: tuple[str, ...] = ()
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    text_targets: tuple[str, ...] = ()
    keep_precise: tuple[str, ...] = ()
    muon_excluded: tuple[str, ...] = ()
    parameters: dict[str, int] = field(default_factory=dict)
    bytes_per_token: dict[str, float] = field(default_factory=dict)
    signatures: tuple[str, ...] = ()
    lora_layouts: tuple[str, ...] = ("kohya", "diffusers")
    model_layouts: tuple[str, ...] = ("diffusers", "single_file")
    default_weights: str = ""
    modelspec: str = ""
    licence: str = ""
    sources: tuple[str, ...] = ()
