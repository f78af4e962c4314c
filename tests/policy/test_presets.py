"""Every preset that comes with the suite is right and introduces itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers.presets.load import load_preset

FOLDER = Path(__file__).resolve().parents[2] / "presets"
PRESETS = sorted(FOLDER.rglob("*.toml"))


def test_the_quickstart_is_there() -> None:
    assert FOLDER / "quickstart.toml" in PRESETS


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_preset_loads_and_has_a_header(path: Path) -> None:
    load_preset(path, [])
    header = [line for line in path.read_text(encoding="utf-8").splitlines()[:12] if line.startswith("#")]
    for word in ("goal", "machine", "time", "result"):
        assert any(line.lower().startswith(f"# {word}:") for line in header), f"the header says no {word}"
