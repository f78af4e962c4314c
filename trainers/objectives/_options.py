"""Settings that more than one objective has. An option that the chosen mode would ignore is refused, at its own key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from trainers.core.plugin import Config, option

TimeKind = Literal["uniform", "logit_normal", "mode", "cosmap", "beta"]
_TIME_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "uniform": {},
    "logit_normal": {"mean": 0.0, "std": 1.0},
    "mode": {"scale": 1.29},
    "cosmap": {},
    "beta": {"a": 2.0, "b": 2.0},
}


def refuse_without_effect(value: Any, info: ValidationInfo, chooser: str, used_by: tuple[str, ...]) -> Any:
    """Return `value` if it is unset or field `chooser`, declared before, has one of `used_by`; else ValueError."""
    chosen = info.data.get(chooser)
    if value is None or chosen is None or chosen in used_by:  # None: the chooser itself is wrong, one error is enough
        return value
    wanted = " or ".join(f'"{name}"' for name in used_by)
    raise ValueError(f'"{info.field_name}" has no effect with {chooser} = "{chosen}", only with {wanted}; remove one')


class TimeConfig(Config):
    """How often each time t between 0 (data) and 1 (noise) is trained."""

    kind: TimeKind = option("uniform", "Density of the trained times.")
    mean: float | None = option(
        None, "logit_normal: centre; above 0 trains noisier times. Default 0.", ge=-10, le=10, advanced=True
    )
    std: float | None = option(None, "logit_normal: width. Default 1.", gt=0, le=10, advanced=True)
    scale: float | None = option(
        None, "mode: above 0 prefers the middle, below 0 both ends. Default 1.29.", ge=-1, le=1.75, advanced=True
    )
    a: float | None = option(None, "beta: exponent at data; larger is rarer. Default 2.", ge=0.5, le=100, advanced=True)
    b: float | None = option(
        None, "beta: exponent at noise; larger is rarer. Default 2.", ge=0.5, le=100, advanced=True
    )
    min: float = option(0.0, "Train no time below this; the density keeps its shape.", unit="0..1", ge=0, lt=1)
    max: float = option(1.0, "Train no time above this; the density keeps its shape.", unit="0..1", gt=0, le=1)

    @field_validator("mean", "std", "scale", "a", "b")
    @classmethod
    def _has_effect(cls, value: float | None, info: ValidationInfo) -> float | None:
        users = tuple(kind for kind, fields in _TIME_DEFAULTS.items() if info.field_name in fields)
        return refuse_without_effect(value, info, "kind", users)

    @field_validator("max")
    @classmethod
    def _above_min(cls, value: float, info: ValidationInfo) -> float:
        if value <= info.data.get("min", 0.0):
            raise ValueError(f'"max" must be above "min" = {info.data["min"]}')
        return value

    def parameters(self) -> dict[str, float]:
        """Return the numbers of the chosen density, defaults filled in."""
        defaults = _TIME_DEFAULTS[self.kind]
        chosen = {name: getattr(self, name) for name in defaults}
        return {name: defaults[name] if value is None else value for name, value in chosen.items()}


class LossConfig(Config):
    """How the error of a prediction becomes a number."""

    loss: Literal["l2", "l1", "huber", "smooth_l1"] = option("l2", "Distance between prediction and target.")
    huber_c: float | None = option(
        None, "huber, smooth_l1: errors above this count in a straight line. Default 0.1.", gt=0, le=1, advanced=True
    )
    huber_schedule: Literal["constant", "exponential", "snr"] | None = option(
        None, "huber, smooth_l1: how c falls from 1 at data to huber_c at noise. Default snr.", advanced=True
    )
    normalize_mask_area: bool = option(
        False, "With masks: every picture counts alike, not by the area of its mask.", advanced=True
    )

    @field_validator("huber_c", "huber_schedule")
    @classmethod
    def _huber_has_effect(cls, value: Any, info: ValidationInfo) -> Any:
        return refuse_without_effect(value, info, "loss", ("huber", "smooth_l1"))
