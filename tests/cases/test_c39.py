"""C39, typo in the preset: every problem at once, each with the right name and table; old keys migrated with notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli
from trainers.core.errors import EXIT_USER, Problem
from trainers.presets import document
from trainers.presets.load import PresetError, load_preset

OLD_WITH_TYPOS = """\
version = 0
[run]
steps = 40           # called length today
epochs = "ten"
[model]
family = "starter"
[train]
kind = "lora"
lr = 1e-4            # belongs in [optimizer]
[optimizer]
learning-rate = 1e-4
[[data.concepts]]
folder = "pictures"
"""
OLD = """\
# A preset of an older release.
version = 0

[run]
name = "old"
steps = 40           # how long

[model]
kind = "starter"     # which family
[train]
kind = "lora"
dim = 8
[optimizer]
learning_rate = 1e-4 # a rate
[[data.concepts]]
folder = "pictures"
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "preset.toml"
    file.write_bytes(text.encode())
    return file


def problem_at(found: tuple[Problem, ...], place: str) -> Problem:
    hits = [problem for problem in found if place in problem.where]
    assert len(hits) == 1, found
    return hits[0]


def test_all_problems_at_once_each_with_name_and_table(tmp_path: Path) -> None:
    with pytest.raises(PresetError) as caught:
        load_preset(write(tmp_path, OLD_WITH_TYPOS))
    found = caught.value.problems
    assert len(found) == 3
    assert 'length = "10 epochs"' in problem_at(found, "preset.toml:4: run.epochs").remedy
    assert "lr belongs in [optimizer]: lr = 0.0001" in problem_at(found, "preset.toml:9: train.lr").remedy
    assert "write lr = 0.0001" in problem_at(found, "preset.toml:11: optimizer.learning-rate").remedy
    assert any("run.steps is called run.length" in note for note in caught.value.notes)


def test_lr_under_a_table_that_has_none(tmp_path: Path) -> None:
    text = (
        OLD.replace("version = 0", "version = 1")
        .replace('name = "old"', "lr = 2e-5")
        .replace("steps = 40", "length = 40")
    )
    text = text.replace('kind = "starter"', 'family = "starter"').replace("dim", "rank").replace("learning_rate", "lr")
    with pytest.raises(PresetError) as caught:
        load_preset(write(tmp_path, text))
    assert "lr belongs in [optimizer]: lr = 2e-05" in problem_at(caught.value.problems, "run.lr").remedy


def test_old_keys_are_migrated_with_a_note_each(tmp_path: Path) -> None:
    loaded = load_preset(write(tmp_path, OLD))
    assert loaded.preset.run.length == "40 steps"
    assert loaded.preset.model.family == "starter"
    places = [note.rpartition("preset.toml")[2].split(" is called")[0] for note in loaded.notes]
    assert places == [":6: run.steps", ":9: model.kind", ":12: train.dim", ":14: optimizer.learning_rate"]


def test_save_load_save_is_byte_equal_and_keeps_comments(tmp_path: Path) -> None:
    file = write(tmp_path, OLD)
    document.save(file, load_preset(file).document)
    first = file.read_bytes()
    again = load_preset(file)
    document.save(file, again.document)
    assert file.read_bytes() == first
    assert not again.notes
    assert b'length = "40 steps"           # how long' in first
    assert b'family = "starter"     # which family' in first
    assert first.startswith(b"# A preset of an older release.\nversion = 1\n")


def test_an_old_key_in_a_new_file_is_named(tmp_path: Path) -> None:
    text = OLD_WITH_TYPOS.replace("version = 0", "version = 1")
    with pytest.raises(PresetError) as caught:
        load_preset(write(tmp_path, text))
    assert 'write length = "40 steps"' in problem_at(caught.value.problems, "run.steps").remedy


def test_the_command_line_refuses_it_before_anything_is_loaded(tmp_path: Path, cli: Cli) -> None:
    result = cli("check", write(tmp_path, OLD_WITH_TYPOS))
    assert result.returncode == EXIT_USER
    said = result.stdout + result.stderr
    for place in ("run.epochs", "train.lr", "optimizer.learning-rate"):
        assert place in said
