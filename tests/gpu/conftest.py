"""What the tests on a real card share. TRAINERS_TEST_DEVICE chooses another device, such as `cpu` for a trial run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.tiny import Finished, Workbench, bench, session_folder
from trainers.memory.device import Device, choose

__all__ = ["bench", "session_folder"]

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; needed for exact repetition

Run = Callable[..., Finished]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a card."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("gpu")


@pytest.fixture
def place() -> str:
    """The device under test, as a preset names it."""
    return os.environ.get("TRAINERS_TEST_DEVICE", "auto")


@pytest.fixture
def card(place: str) -> Device:
    """The device under test."""
    return choose(place)


@pytest.fixture
def exact() -> Iterator[None]:
    """Only kernels that repeat bit for bit, where torch has them."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@pytest.fixture
def train(bench: Workbench, place: str) -> Run:
    """Run a tiny model on the device under test, or on another one."""

    def run(changes: dict[str, object], out: str, *, device: str = place, precision: str = "fp32") -> Finished:
        compute = {"device": device, "precision": precision, **changes.get("compute", {})}  # type: ignore[dict-item]
        return bench.run({**changes, "compute": compute}, out)

    return run
