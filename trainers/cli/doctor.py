"""`trainers doctor`: what this machine can do, what is missing, and how to get it."""

from __future__ import annotations

import platform
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer

from trainers import __version__
from trainers.cli import _output
from trainers.cli._options import JsonOption
from trainers.core.errors import Problem, UserError
from trainers.core.units import format_bytes

NEEDED = (
    "torch", "diffusers", "transformers", "peft", "accelerate", "safetensors", "tokenizers", "huggingface-hub", "numpy",
    "pillow", "pydantic", "tomlkit", "typer", "rich", "psutil", "tensorboard",
)  # fmt: skip
OPTIONAL = {
    "bitsandbytes": "8-bit AdamW",
    "prodigyopt": "the Prodigy optimizer",
    "schedulefree": "schedule-free AdamW",
    "xformers": "xformers attention",
}
EXTRA_OF = {"bitsandbytes": "bitsandbytes", "prodigyopt": "prodigy", "schedulefree": "schedulefree"}
TIGHT_DISK_BYTES = 5 * 10**9


@dataclass(frozen=True)
class Machine:
    """Everything `doctor` found out; plain values only."""

    trainers: str
    python: str
    system: str
    packages: dict[str, str | None]
    optional: dict[str, str | None]
    devices: list[dict[str, Any]]
    free_disk_bytes: int
    problems: list[Problem]


def doctor(as_json: JsonOption = False) -> int:
    """Show versions and devices of this machine, what is missing, and how to get it."""
    found = examine(Path.cwd())
    if as_json:
        _output.document({"ok": not found.problems, **asdict(found)})
    else:
        _show(found)
    return 0


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def examine(folder: Path) -> Machine:
    """Look at the environment, the devices and the disk of `folder`."""
    packages = {name: _installed(name) for name in NEEDED}
    problems = [
        Problem(name, "is not installed", "run `python start.py doctor`, or `pip install .` in the project's folder")
        for name, number in packages.items()
        if number is None
    ]
    free = shutil.disk_usage(folder).free
    if free < TIGHT_DISK_BYTES:
        problems.append(Problem(str(folder), f"only {format_bytes(free)} of disk are free", "free some space"))
    devices, unusable = _devices() if packages["torch"] else ([], [])
    problems += unusable or _unused_card(devices, packages["torch"])
    return Machine(
        trainers=__version__,
        python=platform.python_version(),
        system=platform.platform(),
        packages=packages,
        optional={name: _installed(name) for name in OPTIONAL},
        devices=devices,
        free_disk_bytes=free,
        problems=problems,
    )


def _devices() -> tuple[list[dict[str, Any]], list[Problem]]:
    """The devices that compute, and what is wrong with those that do not."""
    from trainers.memory import device

    found: list[dict[str, Any]] = []
    unusable: list[Problem] = []
    for kind in device.KINDS:
        if device.available(kind):
            try:
                chosen = device.choose(kind)
            except UserError as error:
                unusable += error.problems
                continue
            free, total = chosen.memory()
            found.append(
                {
                    "kind": kind,
                    "title": chosen.title(),
                    "precision": chosen.precision,
                    "fast_bf16": device.has_fast_bf16(kind),
                    "free_bytes": free,
                    "total_bytes": total,
                    "notes": list(chosen.notes),
                }
            )
    return found, unusable


def _unused_card(devices: list[dict[str, Any]], torch: str | None) -> list[Problem]:
    """Say so when a driver shows an NVIDIA card that this build of torch does not use."""
    if shutil.which("nvidia-smi") is None or any(entry["kind"] == "cuda" for entry in devices):
        return []
    remedy = "update the driver, or set TRAINERS_TORCH_INDEX to a CUDA index of PyTorch and call start.py"
    return [Problem("NVIDIA", f"a driver is here, but torch {torch} cannot use a card", remedy)]


def _show(found: Machine) -> None:
    typer.echo(f"trainers {found.trainers}, Python {found.python}, {found.system}")
    typer.echo(", ".join(f"{name} {number}" for name, number in found.packages.items() if number))
    _output.table(
        ("device", "name", "memory free / total", "precision", "notes"),
        [
            (
                entry["kind"],
                entry["title"],
                f"{format_bytes(entry['free_bytes'])} / {format_bytes(entry['total_bytes'])}",
                entry["precision"] + (" (bf16 is fast here)" if entry["fast_bf16"] else ""),
                "; ".join(entry["notes"]),
            )
            for entry in found.devices
        ],
    )
    for name, number in found.optional.items():
        typer.echo(f"{name} ({OPTIONAL[name]}): {number or _how_to_get(name)}")
    typer.echo(f"free disk here: {format_bytes(found.free_disk_bytes)}")
    if found.problems:
        _output.problems(found.problems, as_json=False)
    else:
        typer.echo("Everything that is needed is here.")


def _how_to_get(package: str) -> str:
    extra = EXTRA_OF.get(package)
    if extra is None:
        return f"not installed (optional; pip install {package})"
    return f"not installed (optional; python start.py install {extra}, or pip install trainers[{extra}])"
