"""One small kernel on the device before anything is loaded: a driver or a build that does not fit shows only there."""

from __future__ import annotations

import torch

from trainers.core.errors import UserError

_SIZE = 8
_NO_CODE = ("no kernel image", "invalid device function", "NoBinaryForGpu", "named symbol not found")
_OLD_DRIVER = ("driver version is insufficient", "driver on your system is too old", "unsupported toolchain")
# What torch says -> what it means, what to do; "{card}" and "{build}" are filled in.
_MEANINGS = (
    (_NO_CODE, "torch {build} holds no code for {card}", ""),
    (_OLD_DRIVER, "the driver of {card} is too old for torch {build}", "update the driver"),
    (("out of memory",), "the memory of {card} is full before anything was loaded", "end what else uses it"),
    (("busy or unavailable",), "{card} is taken by another program", "end that program"),
)
_OLDER_BUILD = (
    "install a build that does: for NVIDIA cards before compute capability 7.5 call start.py with "
    "TRAINERS_TORCH_INDEX=https://download.pytorch.org/whl/cu126"
)
_NEIGHBOUR = "set HSA_OVERRIDE_GFX_VERSION to the nearest architecture that ROCm supports, such as 10.3.0 or 11.0.0"


def product(device: torch.device, dtype: torch.dtype) -> float:
    """Multiply two small matrices of ones on the device and bring the sum back; it must be 8 * 8 * 8."""
    ones = torch.ones(_SIZE, _SIZE, device=device, dtype=dtype)
    return float((ones @ ones).float().sum().cpu())


def failure(device: torch.device, dtype: torch.dtype) -> Exception | None:
    """Try a kernel in `dtype`; the error where there was one, None where it worked and the result is right."""
    try:
        result = product(device, dtype)
    # Builds without a backend answer with AssertionError or TypeError, what a device lacks is a NotImplementedError.
    except (RuntimeError, AssertionError, TypeError) as error:
        return error
    if result == _SIZE**3:
        return None
    return RuntimeError(f"8 x 8 matrices of ones gave {result} instead of {_SIZE**3}")


def require(device: torch.device, title: str) -> None:
    """Raise UserError that says in plain words why this device cannot compute."""
    error = failure(device, torch.float32)
    if error is not None:
        raise explained(error, title) from error


def explained(error: Exception, title: str) -> UserError:
    """What an error of the first kernel means, and what to do."""
    said = str(error)
    elsewhere = 'or set compute.device = "cpu"'
    for words, problem, remedy in _MEANINGS:
        if any(word.lower() in said.lower() for word in words):
            remedy = remedy or (_NEIGHBOUR if torch.version.hip else _OLDER_BUILD)
            text = problem.format(card=title, build=torch.__version__)
            return UserError(text, where="compute.device", remedy=f"{remedy}, {elsewhere}")
    first = said.splitlines()[0] if said else type(error).__name__
    return UserError(
        f"{title} cannot compute: {first}", where="compute.device", remedy=f"see `trainers doctor`, {elsewhere}"
    )
