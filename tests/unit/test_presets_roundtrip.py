"""Every field of every kind survives being written to a file and read again, and saving twice gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.preset_samples import drawn, leaves, values_with
from trainers.core.errors import Problem, UserError
from trainers.presets import document
from trainers.presets.load import from_values, load_preset
from trainers.presets.preset import Preset
from trainers.presets.schema import Entry

FIELDS = leaves()
QUIET = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=4
)


def name_of(entry: Entry) -> str:
    return "-".join((entry.path, *entry.kinds))


def accepted(values: dict[str, Any]) -> tuple[Preset | None, tuple[Problem, ...]]:
    try:
        return from_values(values), ()
    except UserError as error:
        return None, error.problems


def is_a_rule(problem: Problem) -> bool:
    """A refusal is right where settings contradict each other, never because of a field's own type or bounds."""
    return not problem.what.startswith("must be ")


@pytest.mark.parametrize("entry", FIELDS, ids=name_of)
def test_field_survives_a_file(entry: Entry, tmp_path: Path) -> None:
    tried: list[object] = []

    @QUIET
    @given(st.data())
    def survives(data: st.DataObject) -> None:
        value = data.draw(drawn(entry.path, entry.node))
        preset, refusals = accepted(values_with(entry, value))
        if preset is None:
            assert all(is_a_rule(refusal) for refusal in refusals), refusals
            return
        tried.append(value)
        file = tmp_path / "preset.toml"
        text = document.dumps(preset.values())
        file.write_bytes(text.encode())
        loaded = load_preset(file)
        assert loaded.preset == preset
        assert tomlkit.dumps(loaded.document) == text

    survives()
    assert tried, "no value of this field was accepted"
