"""The preset that is kept with a run means the same as the one it was started with."""

from __future__ import annotations

from pathlib import Path

from trainers.presets.freeze import frozen_text
from trainers.presets.load import load_preset

PRESET = """\
version = 1
[run]
length = "10 steps" # short
[model]
family = "sd15"
[train]
kind = "lora"
[objective]
kind = "denoising"
[objective.time]
kind = "logit_normal"
mean = 0.5
[optimizer]
lr = 1e-3
[data]
[[data.concepts]]
folder = "pictures"
"""


def frozen(folder: Path, source: Path, *overrides: str) -> Path:
    folder.mkdir(exist_ok=True)
    target = folder / "preset.toml"
    target.write_text(frozen_text(load_preset(source, overrides), folder), encoding="utf-8")
    return target


def test_a_table_that_is_replaced_leaves_no_keys_behind(tmp_path: Path) -> None:
    source = tmp_path / "mine.toml"
    source.write_text(PRESET, encoding="utf-8")
    kept = frozen(tmp_path / "run", source, 'objective.time={kind="uniform", min=0.7}')
    time = load_preset(kept).preset.objective.time
    assert (time.kind, time.min, time.mean) == ("uniform", 0.7, None)


def test_overrides_and_comments_are_kept_and_paths_still_lead_to_the_pictures(tmp_path: Path) -> None:
    source = tmp_path / "mine.toml"
    source.write_text(PRESET, encoding="utf-8")
    kept = frozen(tmp_path / "run", source, "optimizer.lr=2e-4")
    loaded = load_preset(kept)
    assert loaded.preset.optimizer.lr == 2e-4
    assert "# short" in loaded.text
    assert (loaded.folder / loaded.preset.data.concepts[0].folder).resolve() == tmp_path / "pictures"


def test_freezing_again_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "mine.toml"
    source.write_text(PRESET, encoding="utf-8")
    kept = frozen(tmp_path / "run", source, "run.seed=7")
    first = kept.read_bytes()
    frozen(tmp_path / "run", kept)
    assert kept.read_bytes() == first
