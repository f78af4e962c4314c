"""start.py: what it decides, how it mends, what it says. pip and the new process are replaced by recorders."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.__main__ import pytest_arguments

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
    for name in ("TRAINERS_TORCH_INDEX", "PIP_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "find_card", lambda: "")
    monkeypatch.setattr(module, "host_answers", lambda host: False)
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
    monkeypatch.setattr(start, "find_card", lambda: pytest.fail("the machine was examined again"))
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
    monkeypatch.setattr(start, "find_card", lambda: "nvidia")
    start.main(["doctor"])
    assert ("pip", ["--editable", ".[cuda]"]) in start.calls


def test_a_card_that_comes_later_gets_a_new_environment(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.shutil, "which", lambda name: None)
    start.main(["doctor"])
    monkeypatch.setattr(start.shutil, "which", lambda name: name if name == "nvidia-smi" else None)
    start.calls.clear()
    start.main(["doctor"])
    assert start.calls[0] == "venv"


LIST = "GPU 0: NVIDIA H200 (UUID: x)\n"


@pytest.mark.parametrize(
    ("tools", "card"),
    [
        ({}, ""),
        ({"nvidia-smi": (LIST, "9.0, 580.65.06\n")}, "nvidia"),
        ({"nvidia-smi": (LIST, "7.5, 580.65.06\n")}, "nvidia"),
        ({"nvidia-smi": (LIST, "6.0, 580.65.06\n")}, "nvidia-old"),
        ({"nvidia-smi": (LIST, "8.6, 560.94\n")}, "nvidia-old"),
        ({"nvidia-smi": (LIST, "12.0, 572.16\n")}, "nvidia"),
        ({"nvidia-smi": (LIST, "6.1, 580.65\n8.6, 580.65\n")}, "nvidia"),
        ({"nvidia-smi": (LIST, "")}, "nvidia"),
        ({"nvidia-smi": ("No devices were found\n", "")}, ""),
        ({"nvidia-smi": OSError()}, ""),
        ({"nvidia-smi": subprocess.TimeoutExpired("nvidia-smi", 30)}, ""),
        ({"nvidia-smi": ("", ""), "rocm-smi": ("", "")}, "amd"),
        ({"amd-smi": ("", "")}, "amd"),
        ({"xpu-smi": ("", "")}, "intel"),
    ],
)
def test_the_card_is_what_its_driver_says(
    root: Path, monkeypatch: pytest.MonkeyPatch, tools: dict[str, Any], card: str
) -> None:
    module = load_start(root)

    def run(command: list[str], **rest: object) -> subprocess.CompletedProcess[str]:
        answer = tools[command[0]]
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, 0, answer[command[1] != "-L"], "")

    monkeypatch.setattr(module.shutil, "which", lambda name: name if name in tools else None)
    monkeypatch.setattr(module.subprocess, "run", run)
    assert module.find_card() == card


@pytest.mark.parametrize(
    ("system", "card", "build"),
    [
        ("linux", "", "cpu"),
        ("linux", "nvidia", ""),
        ("linux", "nvidia-old", "cu126"),
        ("linux", "amd", "rocm7.2"),
        ("linux", "intel", "xpu"),
        ("win32", "", "cpu"),
        ("win32", "nvidia", "cu130"),
        ("win32", "nvidia-old", "cu126"),
        ("win32", "amd", "cpu"),
        ("win32", "intel", "xpu"),
        ("darwin", "", ""),
        ("darwin", "amd", ""),
        ("freebsd14", "", ""),
    ],
)
def test_torch_comes_from_where_the_right_build_is(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch, system: str, card: str, build: str
) -> None:
    assert start.torch_index(system, card, {}) == ""
    monkeypatch.setattr(start, "host_answers", lambda host: host == "download.pytorch.org")
    assert start.torch_index(system, card, {}) == (f"https://download.pytorch.org/whl/{build}" if build else "")


def test_what_a_person_has_set_is_respected(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "host_answers", lambda host: True)
    assert start.torch_index("win32", "nvidia", {"TRAINERS_TORCH_INDEX": " u "}) == "u"
    assert start.torch_index("linux", "", {"PIP_INDEX_URL": "https://mirror"}) == ""
    assert start.torch_index("linux", "", {"PIP_NO_INDEX": "1"}) == ""


def test_an_index_that_fails_after_all_gives_way_to_the_default_one(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[list[str]] = []

    def pip_install(arguments: list[str]) -> None:
        tried.append(arguments)
        if "--index-url" in arguments:
            raise start.SetupError("no such page")

    monkeypatch.setattr(start, "pip_install", pip_install)
    monkeypatch.setattr(start, "host_answers", lambda host: True)
    monkeypatch.setattr(start.sys, "platform", "linux")
    start.install_torch("torch==1.2.3", "")
    assert tried == [
        ["torch==1.2.3", "--index-url", "https://download.pytorch.org/whl/cpu"],
        ["torch==1.2.3"],
    ]
    monkeypatch.setenv("TRAINERS_TORCH_INDEX", "https://download.pytorch.org/whl/cu126")
    with pytest.raises(start.SetupError):
        start.install_torch("torch==1.2.3", "")


@pytest.mark.parametrize("how", [None, OSError("refused"), "hangs"])
def test_the_probe_takes_two_seconds_at_most(root: Path, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    module = load_start(root)
    released = threading.Event()

    def create_connection(address: tuple[str, int], timeout: float) -> contextlib.nullcontext[None]:
        if how == "hangs":
            released.wait(20)
        if isinstance(how, OSError):
            raise how
        return contextlib.nullcontext()

    monkeypatch.setattr(module.socket, "create_connection", create_connection)
    started = time.monotonic()
    assert module.host_answers("example.org") is (how is None)
    assert time.monotonic() - started < 10
    released.set()


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
    # With another torch, look up which builds it has and bring BUILDS and needs_cuda12 up to date.
    assert start.torch_requirement(text) == "torch==2.13.0"
    assert {"cuda", "test", "dev", "prodigy", "schedulefree", "bitsandbytes", "all"} <= set(start.known_extras(text))
    with pytest.raises(start.SetupError):
        start.torch_requirement("torch>=2")


def test_tests_run_in_processes_of_one_thread(start: ModuleType) -> None:
    assert pytest_arguments([], 2) == ["-n", "2", "--dist", "worksteal"]
    quick = pytest_arguments(["--quick", "-k", "a b"], 64)
    assert quick == ["-n", "4", "--dist", "worksteal", "-m", "not slow", "-k", "a b"]
    assert pytest_arguments(["-n0", "tests/unit"], 2) == ["-n0", "tests/unit"]
    assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "1"
    folder = Path.cwd()
    try:
        assert start.main(["test", "--quick"]) == 75
    finally:
        os.chdir(folder)
    assert start.calls[-1] == ("launch", ["-m", "tests", "--quick"])


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
