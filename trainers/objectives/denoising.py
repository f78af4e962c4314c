"""Denoising on the DDPM path: predict eps, v or x0. Stable Diffusion 1.x, 2.x, XL and relatives.

Ho et al. 2020, arXiv 2006.11239; v and zero terminal SNR: Lin et al. 2023, arXiv 2305.08891.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationInfo, field_validator

from trainers.core.errors import UserError
from trainers.core.facts import Facts, NoiseSchedule
from trainers.core.plugin import option

from ._options import LossConfig, TimeConfig, refuse_without_effect

if TYPE_CHECKING:
    from ._protocol import Objective

_DEFAULT_GAMMA = {"min_snr": 5.0, "soft_min_snr": 5.0, "snr_power": 1.0}


class DenoisingConfig(LossConfig):
    """Teach the network to tell noise from picture at the integer times of its DDPM schedule."""

    kind: Literal["denoising"] = option("denoising", "The objective.")
    prediction: Literal["eps", "v", "x0"] | None = option(
        None, "What the network predicts. Unset: what the weights were trained to predict.", advanced=True
    )
    zero_terminal_snr: bool | None = option(
        None, "Rescale the schedule so that its last time is pure noise. Unset: as the weights. Needs v or x0."
    )
    weighting: Literal["none", "min_snr", "soft_min_snr", "debiased", "snr_power"] = option(
        "none", "Weight of the loss by signal-to-noise ratio."
    )
    gamma: float | None = option(
        None, "min_snr, soft_min_snr: SNR at which the weight is cut (default 5); snr_power: exponent (default 1).",
        gt=0, le=1000, examples=[5.0],
    )  # fmt: skip
    noise_offset: float = option(
        0.0, "Strength of noise that shifts whole channels, for dark and bright pictures.", ge=0, le=1, examples=[0.05]
    )
    pyramid_noise: bool = option(False, "Add coarse noise at every scale, for layout and brightness.", advanced=True)
    pyramid_discount: float | None = option(
        None, "pyramid_noise: strength of a level over the finer one. Default 0.3.", gt=0, le=1, advanced=True
    )
    input_perturbation: float = option(
        0.0, "Strength of extra noise that the network sees but must not predict.", ge=0, le=1, advanced=True
    )
    time: TimeConfig = option(default_factory=TimeConfig, help="How often each time is trained.")

    @field_validator("zero_terminal_snr")
    @classmethod
    def _terminal_needs_signal(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("prediction") == "eps":
            raise ValueError('"zero_terminal_snr" needs prediction = "v" or "x0": pure noise says nothing about eps')
        return value

    @field_validator("gamma")
    @classmethod
    def _gamma_has_effect(cls, value: float | None, info: ValidationInfo) -> float | None:
        return refuse_without_effect(value, info, "weighting", tuple(_DEFAULT_GAMMA))

    @field_validator("pyramid_discount")
    @classmethod
    def _discount_has_effect(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("pyramid_noise") is False:
            raise ValueError('"pyramid_discount" has no effect without pyramid_noise = true')
        return value


Config = DenoisingConfig


def build(config: DenoisingConfig, facts: Facts) -> Objective:
    """Make the objective for a family or weights described by `facts`."""
    prediction, schedule = _agree(config, facts)
    from trainers.diffusion import weights
    from trainers.diffusion.paths import make_path

    from ._objective import Distance, Noise, PathObjective, TimeDensity, Weight

    path = make_path("ddpm", schedule)
    gamma = config.gamma if config.gamma is not None else _DEFAULT_GAMMA.get(config.weighting, 0.0)
    by_name: dict[str, Weight | None] = {
        "none": None,
        "min_snr": lambda t: weights.min_snr(path.snr(t), gamma, prediction),
        "soft_min_snr": lambda t: weights.soft_min_snr(path.snr(t), gamma, prediction),
        "debiased": lambda t: weights.debiased(path.snr(t), prediction),
        "snr_power": lambda t: weights.snr_power(path.snr(t), gamma, prediction),
    }
    discount = (0.3 if config.pyramid_discount is None else config.pyramid_discount) if config.pyramid_noise else 0.0
    return PathObjective(
        path=path,
        prediction=prediction,
        density=TimeDensity.of(config.time),
        weight=by_name[config.weighting],
        distance=Distance.of(config),
        noise=Noise(config.noise_offset, discount, config.input_perturbation),
    )


def _agree(config: DenoisingConfig, facts: Facts) -> tuple[str, NoiseSchedule]:
    """Return prediction kind and schedule from settings and weights, or say why they do not fit together."""
    if facts.schedule is None:
        raise UserError(
            f"{facts.title} has no DDPM schedule to denoise on",
            where="objective.kind", remedy='set kind = "flow_matching"',
        )  # fmt: skip
    prediction = config.prediction or facts.prediction
    if prediction == "velocity":
        raise UserError(
            "these weights predict a velocity, which the denoising objective does not train",
            where="objective.kind", remedy='set kind = "flow_matching", or prediction = "v" to retrain them as v',
        )  # fmt: skip
    wanted = facts.schedule.zero_terminal_snr if config.zero_terminal_snr is None else config.zero_terminal_snr
    if wanted and prediction == "eps":
        raise UserError(
            "zero terminal SNR does not go with eps prediction: pure noise says nothing about eps",
            where="objective.zero_terminal_snr", remedy='set zero_terminal_snr = false, or prediction = "v"',
        )  # fmt: skip
    return prediction, replace(facts.schedule, zero_terminal_snr=wanted)
