"""Flow matching on the rectified path: predict the velocity eps - x0. SD3, FLUX and relatives; also fits SD networks.

Liu et al. 2022, arXiv 2209.03003; Lipman et al. 2022, arXiv 2210.02747; Esser et al. 2024, arXiv 2403.03206.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from trainers.core.facts import Facts
from trainers.core.plugin import option

from ._options import LossConfig, TimeConfig, TimeKind

if TYPE_CHECKING:
    from ._protocol import Objective


class FlowTimeConfig(TimeConfig):
    """How often each time t between 0 (data) and 1 (noise) is trained, before the shift."""

    kind: TimeKind = option("logit_normal", "Density of the trained times.")


class FlowMatchingConfig(LossConfig):
    """Teach the network the straight way from noise to picture."""

    kind: Literal["flow_matching"] = option("flow_matching", "The objective.")
    time: FlowTimeConfig = option(
        default_factory=FlowTimeConfig, help="How often each time is trained; min and max hold after the shift."
    )
    shift: float | Literal["auto"] = option(
        "auto", "Moves times towards noise (above 1) or data (below 1). auto: the family's own, by picture size.",
        examples=["auto", 3.0], unit="factor, 0.01 to 100",
    )  # fmt: skip
    weighting: Literal["none", "cosmap"] = option("none", "Weight of the loss by time.", advanced=True)

    @field_validator("shift")
    @classmethod
    def _is_a_factor(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and not 0.01 <= value <= 100.0:
            raise ValueError('"shift" must be "auto" or lie between 0.01 and 100')
        return value


Config = FlowMatchingConfig


def build(config: FlowMatchingConfig, facts: Facts) -> Objective:
    """Make the objective for a family or weights described by `facts`."""
    from trainers.diffusion import weights
    from trainers.diffusion.paths import make_path

    from ._objective import Distance, Noise, PathObjective, TimeDensity

    points = facts.time_shift if config.shift == "auto" else ((1, float(config.shift)),)
    return PathObjective(
        path=make_path("rectified", None),
        prediction="velocity",
        density=TimeDensity.of(config.time, points, patch=max(1, facts.size_multiple // facts.stride_xy)),
        weight=weights.cosmap if config.weighting == "cosmap" else None,
        distance=Distance.of(config),
        noise=Noise(),
    )
