"""What a model family gives: facts, and about ten methods. The engine asks; the family never calls the engine.

A family draws no random number, chooses no time, computes no loss, and knows no optimizer, rank or preset.
Letters: B samples, C channels, F latent frames, H x W latent grid, T x Y x X pixels, S text tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .batch import Condition, Geometry
from .facts import Facts

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

TensorDict = dict[str, "Tensor"]


@dataclass(frozen=True)
class Weights:
    """Where the weights of a model lie, found before anything is loaded. `form` is "folder" or "single_file".

    `folder` is the diffusers-layout folder (for a single file: the bundled configs and tokenizers of its family).
    `facts` are the family's, refined by what the files say (prediction kind, schedule). `digest` names the content.
    """

    form: str
    folder: Path
    file: Path | None
    facts: Facts
    digest: str
    title: str
    vae: Path | None = None


@dataclass(frozen=True)
class SampleSteps:
    """How to sample: `steps` denoising steps, `guidance` scale (1 = none), `on_step` called after each step."""

    steps: int
    guidance: float
    on_step: Callable[[], None]


class Family(Protocol):
    """One model family; `Family()` takes no argument and holds no state."""

    facts: Facts

    def resolve(self, weights: str, *, vae: str | None = None, offline: bool = False) -> Weights:
        """Find every file of `weights` (folder, single file, hub id, "builtin:NAME"); a local path needs no network."""

    def load(self, part: str, weights: Weights, *, dtype: torch.dtype, device: torch.device | str) -> nn.Module:
        """Load "denoiser", "vae" or "text"; the text part has `.encoders` (ModuleDict) and `.tokenizers`."""

    def encode_pixels(self, vae: nn.Module, pixels: Tensor, eps: Tensor | None) -> Tensor:
        """pixels [B, 3, T, Y, X] in [-1, 1] -> latents float32 [B, C, F, H, W], variance 1; eps None = the mean."""

    def decode_latents(self, vae: nn.Module, latents: Tensor) -> Tensor:
        """latents [B, C, F, H, W] -> pixels [B, 3, T, Y, X] in [-1, 1]."""

    def encode_text(self, text: nn.Module, captions: Sequence[str]) -> list[Condition]:
        """B captions -> B conditions of one sample each (no batch axis); differentiable where gradients are enabled."""

    def null_condition(self, text: nn.Module) -> Condition:
        """The condition of "no caption"."""

    def count_tokens(self, text: nn.Module, caption: str) -> dict[str, tuple[int, int]]:
        """Per text encoder: (tokens the caption has, tokens that fit), without start and end marks."""

    def collate(
        self, conditions: Sequence[Condition], grid: tuple[int, int, int], geometry: Sequence[Geometry]
    ) -> Condition:
        """B single conditions -> one of B, padded, with what grid (F, H, W) and crops add (size ids, positions)."""

    def predict(self, denoiser: nn.Module, x_t: Tensor, t: Tensor, condition: Condition) -> Tensor:
        """x_t [B, C, F, H, W], t [B] in [0, 1] (1 = noise) -> [B, C, F, H, W] in units of the prediction kind."""

    def to_published(self, state: Mapping[str, Tensor], layout: str) -> TensorDict:
        """Our LoRA or model names -> the names of a published layout."""

    def from_published(self, state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> TensorDict:
        """Any known layout -> our names; the file's `metadata` may hold what its tensors do not (diffusers' alpha)."""

    def markers(self, weights: Weights) -> TensorDict:
        """Empty tensors that go into a single file and tell what its weights predict."""

    def write_configs(self, weights: Weights, file: Path) -> Path | None:
        """Put configs and tokenizers beside a single file whose shapes are not the family's; returns where."""

    def lora_metadata(self, state: Mapping[str, Tensor], layout: str) -> dict[str, str]:
        """What a loader of `layout` reads in the header of a LoRA file beside its tensors."""

    def pipeline(self, weights: Weights, parts: Mapping[str, Any]) -> Any:
        """diffusers' own pipeline around loaded parts, so that a preview is what users will get."""

    def sample(
        self, pipeline: Any, condition: Condition, negative: Condition, eps: Tensor, settings: SampleSteps
    ) -> Tensor:
        """Run the pipeline from noise eps [B, C, F, H, W] with collated conditions -> clean latents [B, C, F, H, W]."""

    def tiny(self, folder: Path, *, variant: str = "") -> Path:
        """Write a random instance of a few hundred thousand weights with tokenizers to `folder`, without downloads."""
