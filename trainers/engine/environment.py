"""environment.json: what a run ran on, so that it explains itself later. Never a secret."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import trainers

_PACKAGES = ("torch", "diffusers", "transformers", "peft", "safetensors", "tokenizers", "numpy", "pillow", "pydantic")


def describe(device_title: str, precision: str) -> dict[str, Any]:
    """Versions, machine, device and the commit of a checkout."""
    return {
        "trainers": trainers.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "device": device_title,
        "precision": precision,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def commit() -> str | None:
    """The commit of the checkout this runs from, with "+changes" where files differ from it; None outside one."""
    root = Path(trainers.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, encoding="utf-8", timeout=5,
            check=True,
        )  # fmt: skip
        state = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+changes" if state.stdout.strip() else "")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
