"""Where the suite keeps its own files: presets, data sets of the examples, and the runs people start.

In a checkout they lie beside the packages; in an installed copy under `trainers/_bundled`, and runs go to the current
folder, since nobody wants results inside site-packages.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def checkout() -> Path | None:
    """Return the root of the source checkout this code runs from, or None for an installed copy."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "models").is_dir() else None


def _own(name: str) -> Path:
    root = checkout()
    return root / name if root is not None else _PACKAGE / "_bundled" / name


def presets_folder() -> Path:
    """Return the folder of the presets that come with the suite."""
    return _own("presets")


def datasets_folder() -> Path:
    """Return the folder of the small data sets that come with the suite."""
    return _own("datasets")


def expanded(text: str | Path) -> Path:
    """Read "~" as the user's home; what only looks like somebody's home, as the folder "~old", stays as it is."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def runs_folder() -> Path:
    """Return the folder in which run directories are made when nothing else is asked for."""
    return (checkout() or Path.cwd()) / "runs"
