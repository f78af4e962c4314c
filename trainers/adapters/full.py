"""Full fine-tune: the model's own weights are trained, all of them or those that patterns choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from trainers.core.plugin import Config as Base
from trainers.core.plugin import option

if TYPE_CHECKING:
    from ._protocol import Adapter

Rate = Annotated[float, Field(gt=0)]


class Config(Base):
    """Train the model's own weights. Needs far more memory than a LoRA; the result is a whole model."""

    kind: Literal["full"] = option("full", "Full fine-tune.")
    parts: list[str] = option(
        ["denoiser"],
        "Which networks are trained: denoiser, text_encoder, text_encoder_2.",
        min_length=1,
        examples=[["denoiser", "text_encoder"]],
    )
    lr: dict[str, Rate] = option(
        default_factory=dict,
        help="Learning rate per part or name pattern, where it differs from the optimizer's; later entries win.",
        examples=[{"text_encoder": 1e-6}],
    )
    include: list[str] = option(
        ["*"], "Name patterns of the weights that are trained.", advanced=True, min_length=1, examples=[["*attn*"]]
    )
    exclude: list[str] = option(
        default_factory=list, help="Name patterns of weights that stay frozen.", advanced=True, examples=[["*.norm*"]]
    )
    init_from: str | None = option(None, "Trained weights of an earlier run to start from.", advanced=True)


def build(config: Config, seed: int = 1) -> Adapter:  # noqa: ARG001 - part of every adapter's signature
    """Make the adapter; a full fine-tune draws nothing, so `seed` changes nothing."""
    from ._full import FullAdapter

    return FullAdapter(
        parts=config.parts,
        rates=config.lr,
        include=config.include,
        exclude=config.exclude,
        init_from=config.init_from,
    )
