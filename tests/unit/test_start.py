"""start.py: what it decides, how it mends, what it says. pip and the new process are replaced by recorders."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PYPROJECT = """\
[project]
dependencies = ["torch==2.13.0", "other>=1"]

[project.optional-dependencies]
cuda = ["x"]
prodigy = ["y"]
test = ["z"]

[tool.other]
not-an-extra = ["q"]
"""


def load_start(root: Path) -> ModuleType:
    """Import start.py from its place, as nobody else does."""
    spec = importlib.util.spec_from_file_location("start_under_test", root / "start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def start(root: Path, awkward: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """start.py as a module, living in an awkward path; child processes are recorded, not started."""
    module = load_start(root)
    monkeypatch.setattr(module, "ROOT", awkward)
    monkeypatch.setattr(module, "VENV", awkward / ".venv")
    monkeypatch.setattr(module, "STAMP", awkward / ".venv" / "trainers-install.json")
    (awkward / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    monkeypatch.delenv("TRAINERS_TORCH_INDEX", raising=False)
    monkeypatch.setattr(module, "has_nvidia", lambda: False)
    module.calls = []

    def make_venv() -> None:
        module.calls.append("venv")
        module.venv_python().parent.mkdir(parents=True, exist_ok=True)
        module.venv_python().touch()
        module.STAMP.unlink(missing_ok=True)

    def launch(arguments: list[str], environment: dict[str, str]) -> int:
        module.calls.append(("launch", list(arguments)))
        module.environment = environment
        return 75

    monkeypatch.setattr(module, "make_venv", make_venv)
    monkeypatch.setattr(module, "pip_install", lambda arguments: module.calls.append(("pip", list(arguments))))
    monkeypatch.setattr(module, "launch", launch)
    return module


def test_first_start_installs_and_passes_arguments_and_exit_code_on(start: ModuleType) -> None:
    assert start.main(["run", "my preset ü.toml", "--set", "a=b c"]) == 75
    assert start.calls == [
        "venv",
        ("pip", ["torch==2.13.0"]),
        ("pip", ["--editable", "."]),
        ("launch", ["-m", "trainers", "run", "my preset ü.toml", "--set", "a=b c"]),
    ]
    assert start.environment["PYTHONUTF8"] == "1"


def test_second_start_only_launches(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    start.main(["doctor"])
    start.calls.clear()
    monkeypatch.setattr(start, "has_nvidia", lambda: pytest.fail("the machine was examined again"))
    start.main(["doctor"])
    assert start.calls == [("launch", ["-m", "trainers", "doctor"])]


def test_a_cut_off_installation_is_made_again(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(arguments: list[str]) -> None:
        raise KeyboardInterrupt

    recorder = start.pip_install
    monkeypatch.setattr(start, "pip_install", killed)
    assert start.main(["doctor"]) == 1
    monkeypatch.setattr(start, "pip_install", recorder)
    start.calls.clear()
    start.main(["doctor"])
    assert start.calls[0] == "venv"


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"state": "ready"}', '{"state": "ready", "extras": 5}'])
def test_a_broken_stamp_is_no_stamp(start: ModuleType, broken: str) -> None:
    start.main(["doctor"])
    start.STAMP.write_text(broken, encoding="utf-8")
    start.calls.clear()
    start.main(["doctor"])
    assert start.calls[0] == "venv"


def test_a_changed_project_is_installed_into_the_same_environment(start: ModuleType) -> None:
    start.main(["doctor"])
    (start.ROOT / "pyproject.toml").write_text(PYPROJECT + "# changed\n", encoding="utf-8")
    start.calls.clear()
    start.main(["doctor"])
    assert [call[0] for call in start.calls] == ["pip", "pip", "launch"]


def test_a_moved_project_or_another_torch_gets_a_new_environment(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.main(["doctor"])
    text = start.STAMP.read_text(encoding="utf-8")
    start.STAMP.write_text(text.replace("my data", "your data"), encoding="utf-8")
    start.calls.clear()
    start.main(["doctor"])
    assert start.calls[0] == "venv"
    monkeypatch.setenv("TRAINERS_TORCH_INDEX", "file:///wheels/cpu")
    start.calls.clear()
    start.main(["doctor"])
    assert start.calls[:2] == ["venv", ("pip", ["torch==2.13.0", "--index-url", "file:///wheels/cpu"])]


def test_an_environment_without_its_interpreter_is_made_again(start: ModuleType) -> None:
    start.main(["doctor"])
    start.venv_python().unlink()
    start.calls.clear()
    start.main(["doctor"])
    assert start.calls[0] == "venv"


def test_nvidia_brings_the_cuda_extra(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "has_nvidia", lambda: True)
    start.main(["doctor"])
    assert ("pip", ["--editable", ".[cuda]"]) in start.calls


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("GPU 0: NVIDIA H200 (UUID: x)\n", True), ("No devices were found\n", False), (OSError(), False)],
)
def test_has_nvidia_needs_a_card_not_only_a_tool(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, expected: bool
) -> None:
    module = load_start(root)

    def run(command: list[str], **rest: object) -> subprocess.CompletedProcess[str]:
        if isinstance(answer, OSError):
            raise answer
        return subprocess.CompletedProcess(command, 0, answer, "")

    monkeypatch.setattr(module.shutil, "which", lambda name: "/bin/nvidia-smi")
    monkeypatch.setattr(module.subprocess, "run", run)
    assert module.has_nvidia() is expected


def test_torch_comes_from_the_default_place_or_the_named_index(start: ModuleType) -> None:
    assert start.torch_arguments("torch==1.2.3", {}) == ["torch==1.2.3"]
    assert start.torch_arguments("torch==1.2.3", {"TRAINERS_TORCH_INDEX": " u "}) == [
        "torch==1.2.3",
        "--index-url",
        "u",
    ]


@pytest.mark.parametrize(
    ("system", "nvidia", "index", "tip"),
    [
        ("linux", True, "", False),
        ("linux", False, "", True),
        ("linux", False, "u", False),
        ("win32", True, "", True),
        ("win32", False, "", False),
        ("darwin", False, "", False),
    ],
)
def test_a_tip_only_where_another_build_is_better(
    start: ModuleType, system: str, nvidia: bool, index: str, tip: bool
) -> None:
    assert (start.torch_tip(system, nvidia, {"TRAINERS_TORCH_INDEX": index}) is not None) is tip


def test_optional_parts_are_added_and_kept(start: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert start.main(["install", "prodigy"]) == 0
    assert start.calls[-1] == ("pip", ["--editable", ".[prodigy]"])
    start.main(["test"])
    assert ("pip", ["--editable", ".[prodigy,test]"]) in start.calls
    assert start.main(["install", "nonsense"]) == 64
    assert "cuda, prodigy, test" in capsys.readouterr().err
    assert start.main(["install"]) == 64


def test_the_real_project_names_its_torch_and_extras(start: ModuleType, root: Path) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert start.torch_requirement(text).startswith("torch==")
    assert {"cuda", "test", "dev", "prodigy", "schedulefree", "bitsandbytes", "all"} <= set(start.known_extras(text))
    with pytest.raises(start.SetupError):
        start.torch_requirement("torch>=2")


def test_tests_run_in_processes_of_one_thread(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert start.test_arguments([], 2) == ["-m", "pytest", "-n", "2", "--dist", "worksteal"]
    quick = start.test_arguments(["--quick", "-k", "a b"], 64)
    assert quick[2:] == ["-n", "4", "--dist", "worksteal", "-m", "not slow", "-k", "a b"]
    assert start.test_arguments(["-n0", "tests/unit"], 2) == ["-m", "pytest", "-n0", "tests/unit"]
    folder = Path.cwd()
    try:
        assert start.main(["test", "--quick"]) == 75
    finally:
        os.chdir(folder)
    assert start.environment["OMP_NUM_THREADS"] == "1"
    assert start.environment["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_without_arguments_it_says_what_can_be_done(
    start: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert start.main(arguments) == 0
    assert "presets/quickstart.toml" in capsys.readouterr().out
    assert start.calls == []


@pytest.mark.parametrize(
    ("version", "right"), [((3, 9, 1), False), ((3, 10, 0), True), ((3, 13, 9), True), ((3, 14, 0), False)]
)
def test_other_pythons_are_refused_by_name(start: ModuleType, version: tuple[int, ...], right: bool) -> None:
    problem = start.python_problem(version)
    assert (problem is None) is right
    assert problem is None or ("3.10 to 3.13" in problem and "->" in problem)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying ... NewConnectionError('Failed to establish a new connection')", "no internet"),
        ("socket.gaierror: getaddrinfo failed", "no internet"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no build of torch"),
        ("ERROR: something else", "something else"),
    ],
)
def test_a_failed_pip_is_explained(start: ModuleType, line: str, word: str) -> None:
    assert word in start.explain_pip(["Collecting x", line])


def test_a_waiting_person_sees_big_downloads_only(start: ModuleType) -> None:
    assert (
        start.pip_progress("  Downloading torch-2.13.0.whl (190.2 MB)\n") == "Downloading torch-2.13.0.whl (190.2 MB)"
    )
    assert start.pip_progress("  Downloading small.whl (12 kB)\n") is None
    assert start.pip_progress("Installing collected packages: a, b, c\n") == "Installing 3 packages ..."
    assert start.pip_progress("Requirement already satisfied: x\n") is None


def test_a_full_disk_stops_before_the_start(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "FREE_BYTES_NEEDED", 1 << 62)
    assert start.main(["doctor"]) == 1
    assert "are free on the disk" in capsys.readouterr().err
    assert start.calls == []


def test_a_missing_venv_part_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_start(root)
    text = "The virtual environment was not created successfully because ensurepip is not available."
    monkeypatch.setattr(
        module.subprocess, "run", lambda command, **rest: subprocess.CompletedProcess(command, 1, text, "")
    )
    with pytest.raises(module.SetupError, match="-venv"):
        module.make_venv()


def test_start_needs_only_the_standard_library(root: Path) -> None:
    script = "import sys; sys.argv = ['start.py']; import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
    result = subprocess.run([sys.executable, "-I", "-S", "-c", script], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "python start.py" in result.stdout
