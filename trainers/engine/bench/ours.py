"""Our loop and our caching, the real ones: preset, plan, session, loader and callbacks as `trainers run` has them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.engine.planning import Prepared, prepare
from trainers.engine.progress import Progress
from trainers.engine.session import Quiet, Session
from trainers.engine.signals import StopRequest, listening
from trainers.memory.collector import collector_paused
from trainers.presets.load import load_preset
from trainers.rundir import lock
from trainers.rundir.events import EventLog
from trainers.rundir.heartbeat import Heartbeat
from trainers.rundir.layout import RunDir

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.engine.bench.gate import Gate
    from trainers.engine.bench.spec import Case
    from trainers.engine.stages import Stages
    from trainers.engine.step import Report
    from trainers.presets.preset import Preset


class Stopwatch(Quiet):
    """Ends and begins laps between two steps of the loop; the last of the callbacks."""

    def __init__(self, case: Case, gate: Gate) -> None:
        self._case, self._gate = case, gate

    def on_step(self, session: Session, report: Report) -> None:
        """Tell the first step, and each lap when it is over."""
        if report.step == 1:
            self._gate.first_step()
        done = report.step - self._case.warmup
        if done < 0 or done % self._case.steps:
            return
        if done:
            self._gate.lap(self._case.steps)
        if report.step < session.plan.total_steps:
            self._gate.wait()


def train(case: Case, gate: Gate, *, cold: bool = False) -> None:
    """Run our training as a user's run is run, lap by lap; `cold` with an empty cache."""
    cache = case.home / "cold-cache" if cold else case.cache
    loaded = load_preset(case.preset)
    folder = case.home / "run"
    shutil.rmtree(folder, ignore_errors=True)  # a run that is there would be resumed
    directory = RunDir(folder).create()
    with (
        lock.hold(directory),
        listening(StopRequest()) as stop,
        EventLog(directory.events) as events,
        Heartbeat(events),
    ):
        prepared = prepare(loaded, cache=cache)
        with collector_paused():  # as engine.run does
            from trainers.engine.assemble import assemble
        from trainers.engine.loop import train as loop

        session = assemble(loaded, directory, prepared, events, stop, Progress(quiet=True), _silent, cache)
        session.callbacks = (*session.callbacks, Stopwatch(case, gate))
        loop(session)
    gate.end()


def encode(case: Case, gate: Gate) -> None:
    """Fill an empty cache with the latents of every picture, once a lap."""
    from trainers.data.encode import fill_latents
    from trainers.engine.stages import latents_of

    for number in range(case.rounds):
        with _stages(case, case.home / f"encode-{number}") as (stages, prepared, preset):
            vae = stages.load("vae")
            rule = latents_of(stages, preset)
            gate.wait()
            fill_latents(
                prepared.training, prepared.fits, rule, stages.cache, stages.family, vae, stages.watch("latents")
            )
            gate.lap(case.pictures)
    gate.end()


def fill(case: Case) -> dict[str, Tensor]:
    """Fill the case's cache as a run does; returns x0 [N, C, H, W] and context [N, S, D] of all pictures."""
    import torch

    from trainers.engine import build
    from trainers.engine.assemble import make_loader
    from trainers.engine.stages import encode_captions, encode_pictures

    with _stages(case, case.cache) as (stages, prepared, preset):
        encode_pictures(stages, prepared, preset)
        encode_captions(stages, prepared, preset, ())
        loader = make_loader(stages, prepared, preset, build.make_objective(preset, stages.weights)[0])
        micro = loader.epoch()
        loader.close()
    contexts = [batch.condition["context"] for batch in micro if batch.condition is not None]
    return {"x0": torch.cat([batch.x0[:, :, 0] for batch in micro]), "context": torch.cat(contexts)}


@contextmanager
def _stages(case: Case, cache: Path) -> Iterator[tuple[Stages, Prepared, Preset]]:
    """What a run has before its networks are loaded."""
    from trainers.data.cache import Cache
    from trainers.engine import build
    from trainers.engine.assemble import set_up
    from trainers.engine.stages import Stages
    from trainers.presets.preset import resolve

    loaded = load_preset(case.preset)
    device = set_up(loaded.preset, _silent)
    family = build.family_of(loaded.preset.model.family)
    preset = resolve(loaded.preset, family.facts)
    weights = build.resolve_weights(family, preset, loaded.path.parent)
    directory = RunDir(case.home / "stages").create()
    prepared = prepare(loaded, cache=cache)
    with EventLog(directory.events) as events:
        yield (
            Stages(family, weights, device, Cache(cache), directory, events, StopRequest(), _silent), prepared, preset,
        )  # fmt: skip


def _silent(text: str) -> None:
    """Say nothing."""
