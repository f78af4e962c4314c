"""Explanations, the JSON schema, and the library of presets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainers.core import places
from trainers.core.errors import UserError
from trainers.presets import library, schema
from trainers.presets.explain import explain, explain_all, render
from trainers.presets.load import load_preset


def test_a_key_of_a_plain_table() -> None:
    found = explain("ema.decay")
    assert (found.default, found.bounds, found.where) == ("0.999", "at least 0 and below 1", "[ema]")
    assert "share" in found.unit
    assert explain("step.clip_norm") == explain("clip_norm")


def test_a_key_that_differs_by_kind() -> None:
    found = explain("optimizer.lr")
    kinds = {kind for variant in found.variants or (found,) for kind in variant.kinds}
    assert {"adamw", "prodigy"} <= kinds
    text = render(found)
    assert "prodigy" in text
    assert "default" in text


def test_a_table_lists_its_kinds_and_keys() -> None:
    found = explain("train")
    assert set(found.kinds) == set(schema.kinds_of("train"))
    assert {"train.rank", "train.kind"} <= {member.path for member in found.members}
    assert explain("data.concepts").where == "[[data.concepts]]"


def test_everything_can_be_explained() -> None:
    for found in explain_all():
        assert render(found)
    for entry in schema.entries():
        assert explain(entry.path.replace("[]", "")).path.startswith(entry.path.split("[")[0])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("optimizer.betaz", "optimizer.betas"),
        ("learning_rate", "optimizer.lr"),
        ("lr", "train.lr"),
        ("zzzz", "tables are"),
    ],
)
def test_unknown_keys_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        explain(name)


def test_json_schema_carries_what_a_form_needs() -> None:
    text = json.dumps(schema.json_schema())
    assert '"unit"' in text
    assert '"advanced"' in text
    assert schema.json_schema()["properties"]["train"]["discriminator"]["propertyName"] == "kind"


def test_cards_come_from_the_header() -> None:
    cards = {card.name: card for card in library.list_presets()}
    card = cards["sd15/dreambooth-lora-12gb"]
    assert (card.family, card.method) == ("sd15", "lora")
    assert card.goal.endswith("(DreamBooth with prior preservation).")
    assert card.machine == "One graphics card with 12 GB."


def test_names_are_found_short_and_with_hints() -> None:
    assert library.find("full-24gb") == library.find("sd15/full-24gb.toml")
    with pytest.raises(UserError, match="did you mean sd15/lora-12gb or sd2/lora-12gb"):
        library.find("lora-12gb")
    assert library.show("quickstart").startswith("# Goal:")


def test_copies_lead_to_the_same_files(tmp_path: Path) -> None:
    root, mine = tmp_path / "library", tmp_path / "mine"
    (root / "pictures").mkdir(parents=True)
    text = library.show("quickstart").replace("../datasets/yellow-cat", "pictures")
    (root / "one.toml").write_text(text, encoding="utf-8")
    mine.mkdir()
    copied = library.copy("one", mine, root)
    assert copied == mine / "one.toml"
    folder = load_preset(copied).preset.data.concepts[0].folder
    assert (mine / folder).resolve() == (root / "pictures").resolve()
    assert copied.read_text(encoding="utf-8") == text.replace('"pictures"', '"../library/pictures"')
    with pytest.raises(UserError, match="exists already"):
        library.copy("one", mine, root)


def test_places_of_a_checkout_and_of_an_installed_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert places.presets_folder().is_dir()
    assert places.presets_folder().parent == places.datasets_folder().parent == places.runs_folder().parent
    monkeypatch.setattr(places, "_PACKAGE", tmp_path / "site-packages" / "trainers")
    monkeypatch.chdir(tmp_path)
    assert places.presets_folder() == tmp_path / "site-packages" / "trainers" / "_bundled" / "presets"
    assert places.runs_folder() == tmp_path / "runs"
