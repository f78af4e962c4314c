"""Editing a preset in place, and the line of every key."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomlkit

from trainers.core.errors import UserError
from trainers.presets import edit, paths
from trainers.presets.lines import lines_of

TEXT = """\
# head
version = 1   # one

[optimizer] # rates
lr = 1e-4     # slow
kind = "adamw"
# last words

[[data.concepts]]
folder = "a"  # first
[[data.concepts]]
folder = 'b'
"""


def edited(path: str, value: object) -> str:
    document = tomlkit.parse(TEXT)
    edit.set_value(document, path, value)
    return tomlkit.dumps(document)


def test_value_changes_and_comments_stay() -> None:
    assert edited("optimizer.lr", 2e-4) == TEXT.replace("1e-4 ", "0.0002 ")
    assert edited("data.concepts.1.folder", "c") == TEXT.replace("'b'", '"c"')
    assert edited("version", 2) == TEXT.replace("version = 1", "version = 2")


def test_same_value_stays_as_written() -> None:
    assert edited("optimizer.lr", 0.0001) == TEXT
    assert edited("data.concepts.1.folder", "b") == TEXT
    assert edited("version", True) != TEXT


def test_tables_and_next_entries_are_made() -> None:
    assert tomlkit.parse(edited("objective.time.kind", "beta")).unwrap()["objective"] == {"time": {"kind": "beta"}}
    assert tomlkit.parse(edited("data.concepts.2.folder", "c")).unwrap()["data"]["concepts"][2] == {"folder": "c"}
    document = tomlkit.parse("version = 1\n")
    edit.set_value(document, ("data", "concepts", 0, "folder"), "x")
    assert tomlkit.parse(tomlkit.dumps(document)).unwrap()["data"] == {"concepts": [{"folder": "x"}]}


def test_impossible_places_are_refused() -> None:
    with pytest.raises(UserError, match=r"there is no data\.concepts\.7"):
        edited("data.concepts.7.folder", "c")
    with pytest.raises(UserError, match="only tables and lists"):
        edited("version.x", 1)
    with pytest.raises(ValueError, match="is no key"):
        edited("a = 3\nb", 1)


def test_remove_gives_the_default_back() -> None:
    document = tomlkit.parse(TEXT)
    edit.remove(document, "optimizer.lr")
    edit.remove(document, "optimizer.nothing")
    assert tomlkit.dumps(document) == TEXT.replace("lr = 1e-4     # slow\n", "")


def test_paths_are_written_as_toml_wants() -> None:
    for path in (("a", "b"), ("train", "ranks", "*.x"), ("data", "concepts", 0, "folder")):
        assert edit.parse_path(edit.write_path(path)) == path


def test_rebase_moves_only_what_is_a_path_here(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new" / "deep"
    (old / "a").mkdir(parents=True)
    document = tomlkit.parse(
        '[model]\nweights = "owner/name"\nvae = "builtin:x"\n' + TEXT.replace("version = 1   # one\n", "")
    )
    edit.set_value(document, "train.init_from", "./lora.safetensors")
    paths.rebase(document, old, new)
    values = document.unwrap()
    assert values["model"] == {"weights": "owner/name", "vae": "builtin:x"}
    assert [concept["folder"] for concept in values["data"]["concepts"]] == ["../../old/a", "b"]
    assert values["train"]["init_from"] == "../../old/lora.safetensors"


def test_lines_of_all_kinds_of_values() -> None:
    text = (
        'version = 1\n# note = 2\na.b = 1\n[data]\nbatch=2\n[[data.concepts]]\nfolder = """a\n[x]\ny = 1\n"""\n'
        "[[data.concepts]]\nfolder = 'q'\nlist = [ {a = 1}, # c\n {b = [1, 2], c = {d = 3}},\n]\n"
        '[data.concepts.inner]\nk = """x\\"""" # "\n[train."x.y"]\nz = "#" # [no]\n'
    )
    lines = lines_of(text)
    assert lines["version",] == 1
    assert lines["a", "b"] == 3
    assert lines["data", "concepts", 0, "folder"] == 7
    assert lines["data", "concepts", 1, "folder"] == 12
    assert lines["data", "concepts", 1, "list", 1, "c", "d"] == 14
    assert lines["data", "concepts", 1, "inner", "k"] == 17
    assert lines["train", "x.y", "z"] == 19
    assert ("note",) not in lines
    assert ("data", "concepts", 0, "y") not in lines
