"""A LoRA file painted on its base, with nothing of the run but the file, is the run's own picture."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.tiny import Finished, Workbench, tiny_model
from trainers.cli.app import main
from trainers.core.errors import UserError
from trainers.engine.sampling import SampleSettings, sample

SETTINGS = SampleSettings(("a red circle", "a dog"), "blurry", (64, 64), steps=3, guidance=4.0, seed=5)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"train": {"alpha": 4}},
    "everything": {"train": {"parts": ["denoiser", "text_encoder"], "targets": "all", "conv_rank": 2}},
    "dora": {"train": {"dora": True, "targets": "all", "conv_rank": 2}},
    "ema": {"ema": {"enabled": True, "decay": 0.9}},
}


def trained(bench: Workbench, kind: str = "plain", **more: Any) -> Finished:
    settings = {**KINDS[kind], "run": {"length": "3 steps"}, "export": {"layouts": ["kohya", "diffusers"]}, **more}
    return bench.run(settings, kind)


def alone(run: Finished, layout: str, place: Path) -> Path:
    """The exported file, moved where nothing of the run lies near it."""
    name = f"{run.folder.name}{'' if layout == 'kohya' else '-' + layout}.safetensors"
    return Path(shutil.copy(run.folder / "exports" / name, place))


def differences(one: list[Image.Image], other: list[Image.Image]) -> np.ndarray:
    """How far the colour values of two lists of pictures lie apart, in 255ths."""
    return np.abs(np.stack([np.asarray(a, int) - np.asarray(b, int) for a, b in zip(one, other, strict=True)]))


def apart(one: list[Image.Image], other: list[Image.Image]) -> int:
    """The largest difference of a colour value, in 255ths."""
    return int(differences(one, other).max())


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_paints_what_the_run_paints(bench: Workbench, tmp_path: Path, kind: str, layout: str) -> None:
    run, base = trained(bench, kind), str(tiny_model(bench.models))
    file = alone(run, layout, tmp_path)
    from_run = sample(run.folder, SETTINGS, device="cpu")
    from_file = sample(file, SETTINGS, base=base, device="cpu")
    untrained = sample(base, SETTINGS, family="sd15", device="cpu")
    assert apart(from_file, from_run) <= 1  # a value that lies between two levels may be rounded either way
    assert differences(from_file, from_run).mean() < 1e-3 * 255
    assert apart(from_file, untrained) > 5


@pytest.mark.parametrize("strength", [0.0, 0.5, 2.0])
def test_strength_scales_what_was_trained(bench: Workbench, tmp_path: Path, strength: float) -> None:
    run, base = trained(bench), str(tiny_model(bench.models))
    settings = SampleSettings(("a dog",), "", (64, 64), 3, 4.0, 5, strength)
    from_file = sample(alone(run, "kohya", tmp_path), settings, base=base, device="cpu")
    assert apart(from_file, sample(run.folder, settings, device="cpu")) <= 1
    if strength == 0:
        assert apart(from_file, sample(base, settings, family="sd15", device="cpu")) == 0


def test_another_programs_file_needs_a_family_and_fits_its_base_only(bench: Workbench, tmp_path: Path) -> None:
    run, base = trained(bench), str(tiny_model(bench.models))
    file = alone(run, "kohya", tmp_path)
    save_file(load_file(file), file)  # without what the header says
    with pytest.raises(UserError, match="which family"):
        sample(file, SETTINGS, base=base, device="cpu")
    assert len(sample(file, SETTINGS, base=base, family="sd15", device="cpu")) == 2
    wide = {name: torch.zeros(tensor.shape[0] + 8, *tensor.shape[1:]) if "lora_up" in name else tensor
            for name, tensor in load_file(file).items()}  # fmt: skip
    save_file(wide, file)
    with pytest.raises(UserError, match="has no place for"):
        sample(file, SETTINGS, base=base, family="sd15", device="cpu")


def test_a_lora_without_its_base_says_which_it_was(bench: Workbench, tmp_path: Path) -> None:
    run = trained(bench)
    with pytest.raises(UserError, match="needs its base") as error:
        sample(alone(run, "kohya", tmp_path), SETTINGS, device="cpu")
    assert "tiny-sd15" in str(error.value)
    with pytest.raises(UserError, match="no LoRA file"):
        sample(str(tiny_model(bench.models)), SETTINGS, base="builtin:starter", family="sd15", device="cpu")


def test_the_closing_lines_name_a_command_that_works(
    bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("trainers.engine.progress.Progress.say", lambda self, text: said.append(text))
    trained(bench)
    line = next(line for line in said if "the file alone:" in line)
    words = [word.strip() for word in line.partition("trainers sample")[2].split('"')]
    file, base = words[1], words[3]
    out = tmp_path / "picture.png"
    arguments = ["sample", file, "--base", base, "--prompt", "a dog", "--out", str(out), "--steps", "1"]
    assert main([*arguments, "--size", "64x64", "--device", "cpu"]) == 0
    with Image.open(out) as picture:
        assert picture.size == (64, 64)
