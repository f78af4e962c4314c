"""The base of every part of a preset: unknown keys are refused, every field explains itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """A frozen group of settings. Fields are made with `option`, so that each has help, unit and bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())


def option(
    default: Any = ...,
    help: str = "",  # the word every user knows for it
    *,
    unit: str = "",
    advanced: bool = False,
    examples: list[Any] | None = None,
    default_factory: Any = None,
    **bounds: Any,
) -> Any:
    """Declare a field of a Config.

    `help` is one or two sentences for people, `unit` what the number counts ("steps", "pixels", "share 0..1"),
    `advanced` hides it one fold away in forms, `bounds` are pydantic's (ge, gt, le, lt, min_length, ...).
    """
    extra: dict[str, Any] = {"unit": unit, "advanced": advanced}
    if default_factory is not None:
        return Field(
            default_factory=default_factory, description=help, examples=examples, json_schema_extra=extra, **bounds
        )
    return Field(default, description=help, examples=examples, json_schema_extra=extra, **bounds)
