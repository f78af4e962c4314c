"""Quantities with a unit: parse what people write in a preset, print what people read on a screen."""

from __future__ import annotations

import re
from dataclasses import dataclass

GIB = 1024**3
_NUMBER = re.compile(r"^\s*([0-9]+(?:[._][0-9]+)*)\s*([a-zA-Z%]*)\s*$")
_LENGTH_UNITS = {
    "step": "steps", "steps": "steps", "sample": "samples", "samples": "samples",
    "epoch": "epochs", "epochs": "epochs", "min": "minutes", "mins": "minutes", "minutes": "minutes",
    "h": "hours", "hour": "hours", "hours": "hours", "%": "percent",
}  # fmt: skip
_BYTE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class Length:
    """How long something lasts: `amount` in `unit`, one of steps, samples, epochs, minutes, percent."""

    amount: float
    unit: str

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"


def parse_length(text: str | int) -> Length:
    """Read "2000 steps", "50k samples", "10 epochs", "30 min", "5 %"; a bare number counts steps.

    Raises ValueError with a sentence for people when the text is something else.
    """
    if isinstance(text, int):
        return Length(float(text), "steps")
    match = re.match(r"^\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*(k|m(?!in))?\s*([a-z%]*)\s*$", text.strip().lower())
    if match is None:
        raise ValueError(f'"{text}" is no length; write for example "2000 steps", "50k samples", "10 epochs", "30 min"')
    number, factor, unit = match.groups()
    if unit and unit not in _LENGTH_UNITS:
        raise ValueError(f'"{unit}" is no unit of length; use steps, samples, epochs, min, h or %')
    amount = float(number.replace("_", "")) * {"k": 1e3, "m": 1e6, None: 1.0}[factor]
    name = _LENGTH_UNITS.get(unit, "steps")
    return Length(amount * 60, "minutes") if name == "hours" else Length(amount, name)


def parse_bytes(text: str | int) -> int:
    """Read "24 GB", "11.5 GiB" or a plain number of bytes."""
    if isinstance(text, int):
        return text
    match = _NUMBER.match(text)
    if match is None or (match.group(2).lower() or "b") not in _BYTE_UNITS:
        raise ValueError(f'"{text}" is no amount of memory; write for example "24 GB" or "11.5 GiB"')
    return int(float(match.group(1).replace("_", "")) * _BYTE_UNITS[match.group(2).lower() or "b"])


def format_bytes(count: float) -> str:
    """Print bytes as GiB, or MiB and KiB for small amounts."""
    for size, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(count) >= size:
            return f"{count / size:.1f} {name}"
    return f"{count:.0f} B"


def format_seconds(seconds: float) -> str:
    """Print a duration as people say it: 42 s, 3 min 05 s, 2 h 07 min."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"
