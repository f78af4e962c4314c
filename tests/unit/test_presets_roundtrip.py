"""Every field of every kind survives being written to a file and read again, and saving twice gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.preset_samples import drawn, leaves, values_with
from trainers.core.errors import UserError
from trainers.presets import document
from trainers.presets.load import from_values, load_preset
from trainers.presets.schema import Entry

FIELDS = leaves()
QUIET = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=4
)


def name_of(entry: Entry) -> str:
    return "-".join((entry.path, *entry.kinds))


@pytest.mark.parametrize("entry", FIELDS, ids=name_of)
def test_field_survives_a_file(entry: Entry, tmp_path: Path) -> None:
    tried: list[object] = []

    @QUIET
    @given(st.data())
    def survives(data: st.DataObject) -> None:
        value = data.draw(drawn(entry.path, entry.node))
        try:
            preset = from_values(values_with(entry, value))
        except UserError as error:
            assert _is_a_rule(error), str(error)
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


def _is_a_rule(error: UserError) -> bool:
    """A refusal is right where settings contradict each other, never because of a field's own type or bounds."""
    return not any(" must be " in f" {problem.what} " and ", not " in problem.what for problem in error.problems)
