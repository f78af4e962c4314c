"""Every field of the schema explains itself, and every preset of the suite loads, resolves and says what it is for."""

from __future__ import annotations

import pytest

from trainers.core import places
from trainers.presets import library, schema
from trainers.presets.load import load_preset
from trainers.presets.plugins import facts_of, families
from trainers.presets.preset import resolve
from trainers.presets.schema import Entry, bounds, deref

CARDS = library.list_presets()
FIELDS = schema.entries()


def types(node: schema.Json) -> set[str]:
    node = deref(node)
    inner = node.get("anyOf", ())
    return set().union(*(types(choice) for choice in inner)) if inner else {str(node.get("type", ""))}


def name_of(entry: Entry) -> str:
    return "-".join((entry.path, *entry.kinds))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_preset_loads_and_resolves(card: library.Card) -> None:
    loaded = load_preset(card.path)
    resolved = resolve(loaded.preset, facts_of(card.family))
    assert not loaded.notes
    assert resolved.objective is not None
    assert resolved.model.weights
    assert resolved.export.layouts
    assert min(len(text) for text in (card.goal, card.machine, card.time, card.result)) > 5


@pytest.mark.parametrize("card", [card for card in CARDS if "gb" in card.name], ids=lambda card: card.name)
def test_name_says_the_memory_and_the_comment_its_sources(card: library.Card) -> None:
    limit = load_preset(card.path).preset.compute.memory_limit
    assert limit is not None
    assert card.name.endswith(limit.lower().replace(" ", ""))
    assert card.path.parent.name == card.family
    assert "# Values:" in library.show(card.name)


def test_there_is_a_preset_of_every_family() -> None:
    assert {card.family for card in CARDS} == set(families())
    assert places.presets_folder() / "quickstart.toml" in [card.path for card in CARDS]


@pytest.mark.parametrize("entry", FIELDS, ids=name_of)
def test_field_has_help(entry: Entry) -> None:
    assert len(entry.help) >= len("Lion.")
    assert entry.help == entry.help.strip()


NUMBERS = [entry for entry in FIELDS if types(entry.node) & {"integer", "number"} and "const" not in entry.node]


@pytest.mark.parametrize("entry", NUMBERS, ids=name_of)
def test_number_has_bounds_or_a_unit(entry: Entry) -> None:
    assert bounds(entry.node) or entry.unit


@pytest.mark.parametrize("entry", [entry for entry in FIELDS if "null" in types(entry.node)], ids=name_of)
def test_what_may_be_left_out_is_left_out_by_default(entry: Entry) -> None:
    """TOML has no null, so None can only be written by leaving the key out."""
    assert entry.node.get("default", 0) is None
