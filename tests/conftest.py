"""What every test may use. Threads and the network are set here, before any library reads them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["COLUMNS"] = "120"
os.environ["NO_COLOR"] = "1"
hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is slow, not wrong
hypothesis.settings.load_profile("any machine")

ROOT = Path(__file__).resolve().parents[1]

NO_SOCKETS = '''"""Loaded by the interpreter at its start: refuses every connection to another machine."""
import socket

def refuse(self, address, *rest):
    raise OSError(f"a connection to {address} was tried although the network is blocked")

socket.socket.connect = refuse
socket.socket.connect_ex = refuse
socket.getaddrinfo = lambda *rest, **named: refuse(None, rest)
'''


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden files be written anew after an intended change."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


def has_card() -> bool:
    """Whether torch can use a graphics card here, or `tests/gpu/run.py` has been told which device to take."""
    import torch

    asked = "TRAINERS_TEST_DEVICE" in os.environ
    return asked or torch.cuda.is_available() or torch.xpu.is_available() or torch.backends.mps.is_available()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what cannot run here: GPU tests without a card, network tests unless asked for."""
    asked = config.getoption("markexpr")
    unwanted = set()
    if any(item.get_closest_marker("gpu") for item in items) and not has_card():
        unwanted.add("gpu")
    if "network" not in asked:
        unwanted.add("network")
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in unwanted)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reaches another machine; local sockets (processes talking to each other) stay possible."""
    if request.node.get_closest_marker("network"):
        return
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host not in ("localhost", "127.0.0.1", "::1"):
            raise OSError(f"a test tried to reach {address}")
        real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.fixture
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    """A folder whose path holds a space, an umlaut, Chinese and an apostrophe."""
    folder = tmp_path / "my data ü 猫" / "it's 10_jane doe"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def no_sockets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables under which a child process cannot open any connection."""
    folder = tmp_path_factory.mktemp("no-sockets")
    (folder / "sitecustomize.py").write_text(NO_SOCKETS, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli() -> Cli:
    """Run `trainers ARGS` as a process of its own and return its exit code, output and errors."""

    def run(
        *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        command: Sequence[str] = [sys.executable, "-m", "trainers", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **(env or {})}
        return subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )

    return run
