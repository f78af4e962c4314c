"""Whole runs of a tiny model: made once in a session, written down as a preset, run in this process, and read back."""

from __future__ import annotations

import copy
import gc
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tomlkit
from torch import Tensor

from tests.pictures import make_pictures
from trainers.checkpoint.tensors import read_state
from trainers.core import discover
from trainers.core.family import Family
from trainers.data.loader import StepBatch
from trainers.engine.step import Report, Stepper
from trainers.launch import local
from trainers.presets.load import Loaded, load_preset
from trainers.rundir.events import MetricEvent, WarningEvent, by_step, read
from trainers.rundir.layout import RunDir, step_name

Settings = Mapping[str, Any]
_MODELS: dict[tuple[Path, str, str], Path] = {}


def family_of(name: str) -> Family:
    """The methods of a family."""
    family: Family = discover.load("models", name, "family").Family()
    return family


def tiny_model(base: Path, family: str = "sd15", variant: str = "") -> Path:
    """The folder of a tiny model below `base`, made at the first call of a session."""
    key = (base, family, variant)
    if key not in _MODELS:
        _MODELS[key] = family_of(family).tiny(base / f"tiny-{family}{variant}", variant=variant)
        gc.collect()
        gc.freeze()  # the libraries' own objects live to the end; runs that collect garbage need not look at them
    return _MODELS[key]


@dataclass(frozen=True)
class Finished:
    """A run that has ended, read back from its folder."""

    folder: Path
    code: int

    @property
    def events(self) -> list[Any]:
        """Everything that was said."""
        return read(RunDir(self.folder).events)

    @property
    def metrics(self) -> list[MetricEvent]:
        """The metrics in the order in which they were written."""
        return [event for event in self.events if isinstance(event, MetricEvent)]

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [event.loss for event in by_step(self.metrics)]

    @property
    def rates(self) -> list[float]:
        """The learning rate of each step."""
        return [event.lr for event in by_step(self.metrics)]

    @property
    def warnings(self) -> list[str]:
        """What a person should know."""
        return [event.message for event in self.events if isinstance(event, WarningEvent)]

    @property
    def checkpoints(self) -> list[str]:
        """Names of the saved states."""
        return sorted(path.name for path in RunDir(self.folder).checkpoints.iterdir())

    def saved(self, step: int, name: str = "weights") -> Any:
        """One part of the state saved after `step` updates."""
        return read_state(RunDir(self.folder).checkpoints / step_name(step), name)

    def weights(self, step: int) -> dict[str, Tensor]:
        """The trained weights after `step` updates."""
        state: dict[str, Tensor] = self.saved(step)
        return state


@dataclass(frozen=True)
class Workbench:
    """A folder with pictures and presets; models and cache are shared by the tests of a session."""

    folder: Path
    models: Path
    cache: Path

    def settings(self, changes: Settings, family: str = "sd15", variant: str = "") -> dict[str, Any]:
        """The tables of a small quick run, with changes."""
        tables: dict[str, Any] = {
            "version": 1,
            "run": {"length": "6 steps", "seed": 3},
            "model": {"family": family, "weights": str(tiny_model(self.models, family, variant)), "offline": True},
            "train": {"kind": "lora", "rank": 2},
            "optimizer": {"kind": "adamw", "lr": 1e-2},
            "data": {"batch": 2, "area": "64px", "concepts": [{"folder": "pictures"}]},
            "compute": {"device": "cpu", "precision": "fp32"},
            "checkpoint": {"every": "never"},
            "export": {"layouts": ["kohya"], "precision": "fp32"},
            "logging": {"tensorboard": False},
        }
        return merged(tables, changes)

    def preset(self, changes: Settings, *, name: str = "preset", family: str = "sd15", variant: str = "") -> Path:
        """Write a preset; its pictures are drawn unless they exist."""
        if not (self.folder / "pictures").exists():
            make_pictures(self.folder / "pictures", 5)
        path = self.folder / f"{name}.toml"
        path.write_text(tomlkit.dumps(self.settings(changes, family, variant)), encoding="utf-8")
        return path

    def loaded(self, changes: Settings, **kind: str) -> Loaded:
        """A checked preset."""
        return load_preset(self.preset(changes, **kind))

    def run(self, changes: Settings | None = None, out: str = "run", **kind: str) -> Finished:
        """Run in this process; the same `out` goes on with the same run."""
        path = self.preset(changes or {}, **kind)
        folder = self.folder / "runs" / out
        code = local.run(path, out=str(folder), cache=str(self.cache), quiet=True)
        return Finished(folder, code)


def merged(tables: Settings, changes: Settings) -> dict[str, Any]:
    """Tables with changes laid over them; None takes a key away, and a table of another kind replaces the old one."""
    result = copy.deepcopy(dict(tables))
    for key, value in changes.items():
        old = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(old, dict):
            keep = "kind" not in value or value["kind"] == old.get("kind")
            result[key] = merged(old if keep else {}, value)
        else:
            result[key] = value
    return result


@contextmanager
def stopped_after(step: int) -> Iterator[None]:
    """Within the block a run gets SIGTERM in the middle of update number `step`: one micro-batch is done, not all."""
    real = Stepper.loss
    sent: list[bool] = []

    def loss(self: Stepper, *arguments: Any) -> Any:
        result = real(self, *arguments)
        if self.state.position.step + 1 == step and not sent:
            sent.append(True)
            signal.raise_signal(signal.SIGTERM)
        return result

    with mock.patch.object(Stepper, "loss", loss):
        yield


@contextmanager
def watched() -> Iterator[list[tuple[int, tuple[str, ...]]]]:
    """Within the block, collect (number, ids of the samples in order) of every update that is done."""
    seen: list[tuple[int, tuple[str, ...]]] = []
    real = Stepper.update

    def update(self: Stepper, batch: Any) -> Report:
        report = real(self, batch)
        seen.append((report.step, tuple(name for micro in batch.micro for name in micro.ids)))
        return report

    with mock.patch.object(Stepper, "update", update):
        yield seen


@contextmanager
def batches_of() -> Iterator[list[StepBatch]]:
    """Within the block, collect the batch of every update."""
    seen: list[StepBatch] = []
    real = Stepper.update

    def update(self: Stepper, batch: StepBatch) -> Report:
        seen.append(batch)
        return real(self, batch)

    with mock.patch.object(Stepper, "update", update):
        yield seen


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two states are equal bit for bit."""
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def apart(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference between two states of the same names."""
    assert one.keys() == other.keys()
    return max(float((one[name].float() - other[name].float()).abs().max()) for name in one)


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what all tests of a session share."""
    folder = tmp_path_factory.getbasetemp() / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def bench(tmp_path: Path, session_folder: Path) -> Workbench:
    """A workbench of this test's own, with the session's models and cache."""
    return Workbench(tmp_path, session_folder / "models", session_folder / "cache")
