"""Muon: momentum made orthogonal, for hidden matrices; AdamW for the rest. Jordan et al. 2024, Liu et al. 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from trainers.core.errors import UserError
from trainers.core.plugin import option

from ._groups import Group
from ._protocol import Betas, OptimizerConfig

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Config(OptimizerConfig):
    """Muon for hidden 2-D weights; convolutions, embeddings, first and last projections, norms, biases go to AdamW."""

    kind: Literal["muon"] = option("muon", "Muon with an AdamW half.")
    scale: Literal["match_rms_adamw", "original"] = option(
        "match_rms_adamw",
        'How an update is sized: "match_rms_adamw" as large as AdamW\'s, so that its learning rates carry over; '
        '"original" as in the first publication, with learning rates near 0.02.',
        advanced=True,
    )
    momentum: float = option(0.95, "Share of the old momentum kept each step.", ge=0, lt=1, advanced=True)
    nesterov: bool = option(True, "Look one step ahead along the momentum.", advanced=True)
    ns_steps: int = option(5, "Newton-Schulz iterations towards orthogonality.", ge=1, le=20, advanced=True)
    adam_lr: float | None = option(
        None, 'Learning rate of the AdamW half; default: the same. Scale "original" needs one.', gt=0, le=1
    )
    betas: Betas = option((0.9, 0.999), "Averages of the AdamW half.", advanced=True)
    eps: float = option(1e-8, "Keeps the AdamW half's division finite.", gt=0, advanced=True)

    @model_validator(mode="after")
    def _adam_rate_for_original(self) -> Config:
        if self.scale == "original" and self.adam_lr is None:
            raise ValueError('adam_lr is needed with scale = "original": rates near 0.02 are far too large for AdamW')
        return self


def build(config: Config, groups: list[Group]) -> list[Optimizer]:
    """Route groups by role. A part's own rate applies to Muon; its AdamW half keeps the ratio adam_lr / lr."""
    from torch.optim import Muon

    from ._adamw import make_adamw

    matrices = [group for group in groups if group.role == "matrix"]
    rest = [group for group in groups if group.role != "matrix"]
    if not matrices:
        raise UserError(
            "Muon has nothing to do: no hidden matrix is trained",
            where="optimizer.kind",
            remedy='choose optimizer.kind = "adamw", or train linear layers too',
        )
    # Every argument by name: defaults (a weight decay of 0.1 among them) are the library's, not ours.
    muon = Muon(
        [group.as_dict() for group in matrices],
        lr=config.lr,
        weight_decay=config.weight_decay,
        momentum=config.momentum,
        nesterov=config.nesterov,
        ns_steps=config.ns_steps,
        adjust_lr_fn=config.scale,
    )
    ratio = 1.0 if config.adam_lr is None else config.adam_lr / config.lr
    half = [make_adamw(rest, betas=config.betas, eps=config.eps, rate_factor=ratio)] if rest else []
    return [muon, *half]
