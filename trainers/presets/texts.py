"""Field types for quantities that people write as text: lengths, periods, amounts of memory, folder names."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from trainers.core.units import Length, parse_bytes, parse_length

NEVER = "never"
_LONGEST_NAME = 120  # bytes; file systems end at 255, and names of files are made from it
_FORBIDDEN_IN_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_RESERVED_ON_WINDOWS = re.compile(r"^(con|prn|aux|nul|conin\$|conout\$|com[\d¹²³]|lpt[\d¹²³])(\..*)?$", re.IGNORECASE)


def _spell_out(value: Any) -> Any:
    """Let a bare number count steps: 400 -> "400 steps"."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value} steps"
    return value


def _read(text: str, examples: str) -> Length:
    """Read a length whose steps are known beforehand: the learning rate and the order of pictures depend on them."""
    try:
        length = parse_length(text)
    except ValueError as error:
        raise ValueError(f'"{text}" is no length; write for example {examples}') from error
    if length.unit == "minutes":
        raise ValueError(f'"{text}" is a different number of steps on every machine; write for example {examples}')
    return length


def _check_length(text: str) -> str:
    examples = '"2000 steps", "50k samples" or "10 epochs"'
    length = _read(text, examples)
    if length.amount <= 0 or length.unit == "percent":
        raise ValueError(f'"{text}" is no length of a run; write for example {examples}')
    return text


def _check_part(text: str) -> str:
    _read(text, '"100 steps" or "5 %"')
    return text


def _check_period(text: str) -> str:
    examples = '"100 steps", "1 epoch", "10 %" or "never"'
    if text != NEVER and _read(text, examples).amount <= 0:
        raise ValueError(f'"{text}" is no period; write for example {examples}')
    return text


def _check_memory(text: str) -> str:
    if parse_bytes(text) <= 0:
        raise ValueError(f'"{text}" is no amount of memory; write for example "24 GB"')
    return text


def _check_name(text: str) -> str:
    if _FORBIDDEN_IN_NAMES.search(text) or _RESERVED_ON_WINDOWS.match(text) or text != text.strip(" ."):
        raise ValueError(f'"{text}" cannot be the name of a folder on every system; use letters, digits, "-" and "_"')
    if len(text.encode()) > _LONGEST_NAME:
        raise ValueError(f"a name of {len(text.encode())} bytes is too long; up to {_LONGEST_NAME} work everywhere")
    return text


Duration = Annotated[str, BeforeValidator(_spell_out), AfterValidator(_check_length)]
"""How long a run lasts: "2000 steps", "50k samples", "10 epochs". A bare number counts steps."""

Part = Annotated[str, BeforeValidator(_spell_out), AfterValidator(_check_part)]
"""A part of a run that is known beforehand: "100 steps", "5 %"."""

Period = Annotated[str, BeforeValidator(_spell_out), AfterValidator(_check_period)]
"""How often something happens: "100 steps", "1 epoch", "10 %", or "never"."""

Memory = Annotated[str, AfterValidator(_check_memory)]
"""An amount of memory: "24 GB", "11.5 GiB"."""

FolderName = Annotated[str, AfterValidator(_check_name)]
"""A name that can be a folder on every operating system."""
