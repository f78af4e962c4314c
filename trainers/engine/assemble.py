"""Prepare a run's inputs stage by stage and put its session together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainers.checkpoint.store import clean_staging, newest
from trainers.core.atomic import write_json
from trainers.core.batch import MicroBatch
from trainers.core.units import parse_bytes
from trainers.data.cache import Cache
from trainers.data.captions import caption_settings, ensure_trigger
from trainers.data.keys import without_variants
from trainers.data.loader import Draws, Loader
from trainers.data.order import Order, OrderItem
from trainers.data.samples import Samples
from trainers.engine import build
from trainers.engine.callbacks import standard
from trainers.engine.environment import describe
from trainers.engine.exporting import check_layouts, layouts_of
from trainers.engine.metrics import Metrics
from trainers.engine.planning import Prepared
from trainers.engine.preview import Painter
from trainers.engine.progress import Progress
from trainers.engine.session import Session
from trainers.engine.signals import StopRequest
from trainers.engine.stages import Stages, encode_captions, encode_pictures, latents_of, texts_of
from trainers.engine.state import TrainState
from trainers.memory.device import Device, choose, limit_memory
from trainers.memory.heap import keep_pages
from trainers.presets.preset import Preset, export_kind, resolve
from trainers.rundir.events import EventLog
from trainers.rundir.layout import RunDir

if TYPE_CHECKING:
    from trainers.objectives._protocol import Objective
    from trainers.presets.load import Loaded


def assemble(
    loaded: Loaded, directory: RunDir, prepared: Prepared, events: EventLog, stop: StopRequest,
    progress: Progress, say: Callable[[str], None], cache: Path,
) -> Session:  # fmt: skip
    """Encode what training reads, load what trains, and go back to the newest checkpoint where there is one."""
    device = set_up(loaded.preset, say)
    family = build.family_of(loaded.preset.model.family)
    preset = resolve(loaded.preset, family.facts)
    objective, weights = build.make_objective(preset, build.resolve_weights(family, preset, loaded.path.parent))
    say(f"device {device.title()}, {device.precision}; model {weights.title}")
    write_json(directory.environment, describe(device.title(), device.precision))
    check_layouts(layouts_of(preset, weights.facts, export_kind(preset)), weights.facts, export_kind(preset))

    stages = Stages(family, weights, device, Cache(cache), directory, events, stop, say)
    prompts = preview_prompts(preset)
    encode_pictures(stages, prepared, preset)
    encoded = encode_captions(stages, prepared, preset, prompts)
    text = (
        family.load("text", weights, dtype=torch.float32, device=device.device) if prepared.plan.text_in_step else None
    )
    networks = build.load_networks(family, weights, preset, device, text)
    adapter, trainables = build.make_adapter(preset, networks, weights, family, loaded.folder)
    state = build.make_state(preset, adapter, trainables, device)
    stepper = build.make_stepper(preset, prepared.plan, family, networks, objective, state, device)
    painter = None
    if prompts:
        painter = Painter(family, weights, networks.denoiser, stages.load("vae"), device)
        painter.remember(encoded)
    resumed = restore(directory, state, say)
    session = Session(
        loaded=loaded, plan=prepared.plan, run=directory, events=events, device=device, family=family, weights=weights,
        denoiser=networks.denoiser, vae=painter.vae if painter else None, text=networks.text, prompts=prompts,
        loader=make_loader(stages, prepared, preset, objective), held_out=held_out_batches(stages, prepared, preset),
        stepper=stepper, state=state, painter=painter,
        stop=stop, resumed_from=resumed, say=say,
    )  # fmt: skip
    session.callbacks = standard(Metrics(progress))
    say(f"trains {sum(item.parameter.numel() for item in trainables):,} weights in {len(trainables)} tensors")
    return session


def set_up(preset: Preset, say: Callable[[str], None]) -> Device:
    """Choose the device and set what is global in a process: threads, heap."""
    if preset.compute.threads != "auto":
        torch.set_num_threads(int(preset.compute.threads))
    keep_pages()
    device = choose(preset.compute.device, preset.compute.precision)
    if preset.compute.memory_limit is not None:
        limit_memory(device, parse_bytes(preset.compute.memory_limit))
    for note in device.notes:
        say(f"note: {note}")
    return device


def preview_prompts(preset: Preset) -> tuple[str, ...]:
    """The preview prompts as they are painted: with the trigger in them exactly once, where one is set."""
    triggers = {preset.data.trigger_of(concept) for concept in preset.data.concepts if concept.role == "train"} - {None}
    if len(triggers) != 1 or not preset.preview.insert_trigger:
        return tuple(preset.preview.prompts)
    trigger = next(iter(triggers))
    return tuple(ensure_trigger(prompt, str(trigger)) for prompt in preset.preview.prompts)


def make_loader(stages: Stages, prepared: Prepared, preset: Preset, objective: Objective) -> Loader:
    """The loader of training samples."""
    samples = Samples(prepared.training, prepared.fits, stages.cache, latents_of(stages, preset), texts_of(stages))
    draws = Draws(
        preset.run.seed, caption_settings(preset.data), preset.data.caption_dropout, objective.extra_noise,
        text_in_step=prepared.plan.text_in_step,
    )  # fmt: skip
    return Loader(prepared.order, samples, stages.family, draws, micro_batch=prepared.plan.micro_batch)


def held_out_batches(stages: Stages, prepared: Prepared, preset: Preset) -> list[MicroBatch]:
    """The held-out samples as micro-batches, each once, upright and with its caption."""
    if not prepared.held_out:
        return []
    order = Order(
        [OrderItem(item.id, prepared.fits[item.id].bucket) for item in prepared.held_out],
        batch=prepared.plan.micro_batch, seed=preset.run.seed,
    )  # fmt: skip
    rule = without_variants(latents_of(stages, preset))
    samples = Samples(prepared.held_out, prepared.fits, stages.cache, rule, texts_of(stages))
    draws = Draws(preset.run.seed, text_in_step=prepared.plan.text_in_step)
    loader = Loader(order, samples, stages.family, draws, micro_batch=prepared.plan.micro_batch, prefetch=0)
    try:
        return loader.epoch()
    finally:
        loader.close()


def restore(directory: RunDir, state: TrainState, say: Callable[[str], None]) -> int:
    """Take back the newest whole checkpoint; returns its step, 0 for a fresh start."""
    path, skipped = newest(directory.folder)
    for problem in skipped:
        say(f"note: {problem}")
    clean_staging(directory.folder)
    if path is None:
        return 0
    state.read(path)
    say(f"resuming from {path.name}")
    return state.position.step
