"""What each command passes on to the engine, and how it finds presets and runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from trainers.cli import doctor
from trainers.cli._options import preset_path, run_folder, size_pixels
from trainers.cli.app import main
from trainers.core.errors import UserError


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of two presets."""
    folder = tmp_path / "library"
    (folder / "sd15").mkdir(parents=True)
    (folder / "quickstart.toml").write_text("# Goal: see it work\n", encoding="utf-8")
    (folder / "sd15" / "lora-12gb.toml").write_text("# Goal: ü\n", encoding="utf-8")
    monkeypatch.setattr("trainers.core.places.presets_folder", lambda: folder)
    return folder


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Put a stand-in module in place of an engine module."""
    module = ModuleType(name)
    for key, value in functions.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_preset_is_found_by_path_or_by_name(library: Path, awkward: Path) -> None:
    own = awkward / "my ü.toml"
    own.write_text("", encoding="utf-8")
    assert preset_path(str(own)) == own.resolve()
    assert preset_path("quickstart") == (library / "quickstart.toml").resolve()
    assert preset_path("sd15/lora-12gb.toml") == (library / "sd15" / "lora-12gb.toml").resolve()


@pytest.mark.parametrize(
    ("name", "hint"), [("quikstart", "mean quickstart"), ("zzz", "presets list"), ("../x", "presets list")]
)
def test_an_unknown_preset_gets_a_hint(library: Path, name: str, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        preset_path(name)


def test_a_preset_outside_of_the_library_is_no_name(library: Path) -> None:
    (library.parent / "secret.toml").write_text("", encoding="utf-8")
    with pytest.raises(UserError):
        preset_path("../secret")


def test_a_run_folder_holds_a_preset(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        run_folder(tmp_path / "missing")
    with pytest.raises(UserError, match="no run folder"):
        run_folder(tmp_path)
    (tmp_path / "preset.toml").touch()
    assert run_folder(tmp_path) == tmp_path.resolve()


@pytest.mark.parametrize(("text", "expected"), [("512", (512, 512)), ("768x512", (512, 768)), ("64X128", (128, 64))])
def test_sizes_are_width_by_height(text: str, expected: tuple[int, int]) -> None:
    assert size_pixels(text) == expected


@pytest.mark.parametrize("text", ["", "x", "512x", "axb", "4", "512x4", "-512", "1x2x3"])
def test_wrong_sizes_are_explained(text: str) -> None:
    with pytest.raises(UserError, match="is no size"):
        size_pixels(text)


def test_run_and_resume(monkeypatch: pytest.MonkeyPatch, library: Path, awkward: Path) -> None:
    calls = []

    def run(*arguments: Any, **named: Any) -> int:
        calls.append((arguments, named))
        return 0

    monkeypatch.setattr("trainers.launch.local.run", run)
    monkeypatch.setattr("trainers.launch.local.resume", run)
    assert main(["run", "quickstart", "--out", str(awkward), "--set", "a.b=c d", "--set", "e=1"]) == 0
    named = {"out": str(awkward), "cache": None, "quiet": False}
    assert calls.pop() == (((library / "quickstart.toml").resolve(), ["a.b=c d", "e=1"]), named)
    assert main(["resume", str(awkward)]) == 64
    (awkward / "preset.toml").touch()
    assert main(["resume", str(awkward)]) == 0
    assert calls.pop() == ((awkward.resolve(), []), {"cache": None, "quiet": False})


def test_plan(monkeypatch: pytest.MonkeyPatch, library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = SimpleNamespace(to_json=lambda: {"total_steps": 5})
    fake(monkeypatch, "trainers.presets.load", load_preset=lambda path, settings: (path, settings))
    fake(monkeypatch, "trainers.engine.planning", make_plan=lambda loaded: made)
    fake(monkeypatch, "trainers.engine.render", render_plan=lambda plan: iter(["plan", "  length 5 steps"]))
    assert main(["plan", "quickstart", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"total_steps": 5}
    assert main(["plan", "quickstart"]) == 0
    assert capsys.readouterr().out == "plan\n  length 5 steps\n"


def test_sample_writes_one_file_or_numbered_ones(monkeypatch: pytest.MonkeyPatch, awkward: Path) -> None:
    seen = []

    def sample(source: str, settings: Any, **named: Any) -> list[Image.Image]:
        seen.append((source, settings, named))
        return [Image.new("RGB", (8, 8)) for _ in settings[0]]

    fake(monkeypatch, "trainers.engine.sampling", sample=sample, SampleSettings=lambda *values: values)
    one = awkward / "new" / "a.png"
    assert main(["sample", "runs/x", "--prompt", "a cat", "--out", str(one), "--size", "32x16", "--seed", "9"]) == 0
    assert one.is_file()
    assert seen[-1] == (
        "runs/x", (("a cat",), None, (16, 32), None, None, 9, 1.0), {"base": None, "family": None, "device": "auto"},
    )  # fmt: skip
    assert (
        main(["sample", "m", "--prompt", "a", "--prompt", "b", "--out", str(awkward / "b.webp"), "--family", "sd2"])
        == 0
    )
    assert (awkward / "b-1.webp").is_file()
    assert (awkward / "b-2.webp").is_file()


def test_presets_copy_never_writes_over_a_file(
    monkeypatch: pytest.MonkeyPatch, library: Path, awkward: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (awkward / "mine.toml").touch()
    assert main(["presets", "copy", "quickstart", str(awkward / "mine.toml")]) == 64
    assert "exists already" in capsys.readouterr().err


def test_presets_show_prints_the_file_as_it_is(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "show", "sd15/lora-12gb"]) == 0
    assert capsys.readouterr().out == "# Goal: ü\n"


def test_doctor_tells_what_is_here_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "OPTIONAL", {"no-such-package": "nothing", "prodigyopt": "the Prodigy optimizer"})
    assert main(["doctor", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["packages"]["torch"]
    assert answer["optional"]["no-such-package"] is None
    assert "cpu" in {device["kind"] for device in answer["devices"]}
    assert all(device["total_bytes"] > 0 for device in answer["devices"])
    assert main(["doctor"]) == 0
    assert "pip install no-such-package" in capsys.readouterr().out


def test_doctor_names_each_problem_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("no-such-package",))
    monkeypatch.setattr(doctor, "TIGHT_DISK_BYTES", 1 << 62)
    monkeypatch.setattr(doctor, "_devices", lambda: ([], []))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/bin/nvidia-smi")
    monkeypatch.setitem(doctor.__dict__, "NEEDED", ("no-such-package", "torch"))
    found = doctor.examine(tmp_path)
    assert [problem.where for problem in found.problems] == ["no-such-package", str(tmp_path), "NVIDIA"]
    assert all(problem.remedy for problem in found.problems)


def test_check_with_data_reports_and_lists_what_is_wrong(
    awkward: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (awkward / "pictures").mkdir()
    Image.new("RGB", (64, 64), "red").save(awkward / "pictures" / "ü.png")
    text = (root / "presets" / "quickstart.toml").read_text(encoding="utf-8")
    preset = awkward / "mine.toml"
    preset.write_text(text.replace("../datasets/yellow-cat", "pictures"), encoding="utf-8")
    assert main(["check", str(preset), "--data", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert answer["data"]["training"] == 1
    (awkward / "pictures" / "b.png").write_bytes(b"")
    assert main(["check", str(preset), "--data", "--json"]) == 64
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert "b.png" in answer["problems"][0]["where"]
    assert main(["check", str(preset), "--data"]) == 64
    assert "b.png" in capsys.readouterr().err


def test_bench_starter_shows_shares(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"pictures": 200, "subject": 0.975, "look": 0.9, "ground": 1.0, "all three": 0.88}
    report = {
        "shares": {"all pictures": row},
        "classifier": {"held-out renderings": row},
        "sampling": {"guidance": 3.0, "steps": 24},
        "seconds": {"classifier": 1.0, "painting": 2.0},
    }
    family = SimpleNamespace(Family=lambda: SimpleNamespace(resolve=lambda *_, **__: SimpleNamespace(folder=Path("w"))))
    scorer = SimpleNamespace(bench=lambda *_, **__: report, choose_sampling=lambda guidance, steps: None)
    sprites = SimpleNamespace(check_packages=lambda folder: None, core_numbers=lambda: (0, 1))
    parts = {"family": family, "scorer": scorer, "sprites": sprites}
    monkeypatch.setattr("trainers.core.discover.load", lambda package, name, part: parts[part])
    assert main(["bench", "starter", "--packages", "p", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report
    assert main(["bench", "starter", "--packages", "p"]) == 0
    assert "97.5%" in capsys.readouterr().out
