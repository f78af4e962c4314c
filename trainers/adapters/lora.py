"""LoRA: small low-rank matrices beside frozen weights are trained. Hu et al. 2021; DoRA: Liu et al. 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from trainers.core.plugin import Config as Base
from trainers.core.plugin import option

if TYPE_CHECKING:
    from ._protocol import Adapter

Rate = Annotated[float, Field(gt=0)]
Rank = Annotated[int, Field(ge=0)]


class Config(Base):
    """Train low-rank matrices beside frozen weights: little memory, a small file, any strength afterwards."""

    kind: Literal["lora"] = option("lora", "LoRA, and DoRA with `dora = true`.")
    rank: int = option(16, "Width of the matrices (dim): more can hold more, and overfits sooner.", ge=1, le=1024)
    alpha: float | None = option(
        None,
        "Strength: the learned change is multiplied by alpha / rank. Default: the rank, so a factor of 1. "
        "Layers with a rank of their own keep the same factor.",
        gt=0,
    )
    dropout: float = option(0.0, "Share of inputs hidden from the LoRA while training.", unit="share 0..1", ge=0, lt=1)
    conv_rank: int | None = option(
        None,
        "Rank for convolutions wider than 1x1 among the targets; without it they stay frozen. 1x1 ones use `rank`.",
        ge=1,
        le=1024,
        advanced=True,
    )
    conv_alpha: float | None = option(
        None, "Alpha for `conv_rank`; default: as strong as the rest.", gt=0, advanced=True
    )
    targets: str | list[str] = option(
        "attention",
        'Which layers: a set of the model family ("attention", "attention+mlp", "all") or a list of name patterns.',
        examples=["attention", ["*.attn2.to_k", "*.attn2.to_v"]],
    )
    parts: list[str] = option(
        ["denoiser"],
        "Which networks get a LoRA: denoiser, text_encoder, text_encoder_2.",
        min_length=1,
        examples=[["denoiser", "text_encoder"]],
    )
    lr: dict[str, Rate] = option(
        default_factory=dict,
        help="Learning rate per part or layer pattern, where it differs from the optimizer's; later entries win.",
        examples=[{"text_encoder": 5e-5}],
    )
    ranks: dict[str, Rank] = option(
        default_factory=dict,
        help="Rank per part or layer pattern, where it differs; 0 leaves the layers out; later entries win.",
        advanced=True,
        examples=[{"mid_block.*": 32, "down_blocks.0.*": 0}],
    )
    dora: bool = option(False, "Train a magnitude per output too (DoRA): often better at small ranks, slower.")
    init_from: str | None = option(None, "LoRA file to start from; it needs the same rank and targets.")

    @model_validator(mode="after")
    def _no_idle_option(self) -> Config:
        if self.conv_alpha is not None and self.conv_rank is None:
            raise ValueError("conv_alpha has no effect without conv_rank")
        if isinstance(self.targets, list) and not self.targets:
            raise ValueError("targets is empty: name a set or at least one pattern")
        return self


def build(config: Config, seed: int = 1) -> Adapter:
    """Make the adapter; `seed` decides the start of the A matrices (B starts at zero)."""
    from ._lora import LoraAdapter
    from ._lora_plan import LayerPlan

    factor = 1.0 if config.alpha is None else config.alpha / config.rank
    plan = LayerPlan(
        targets=config.targets,
        rank=config.rank,
        factor=factor,
        conv_rank=config.conv_rank or 0,
        conv_factor=factor if config.conv_alpha is None else config.conv_alpha / (config.conv_rank or 1),
        ranks=config.ranks,
    )
    return LoraAdapter(
        plan=plan,
        parts=config.parts,
        rates=config.lr,
        dropout=config.dropout,
        dora=config.dora,
        seed=seed,
        init_from=config.init_from,
    )
