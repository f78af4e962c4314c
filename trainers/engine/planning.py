"""The Plan: one object, made once, that says how long, how big and how often. Free of torch.

Loop, schedule, progress bar, command line and GUI read it; nobody computes any of its numbers again.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.core.errors import Problem, UserError
from trainers.core.facts import Facts
from trainers.core.position import steps_of
from trainers.core.units import format_bytes, parse_bytes, parse_length
from trainers.data.buckets import BucketPlan, Fit, plan_buckets
from trainers.data.captions import caption_settings
from trainers.data.items import Item, LeftOut, Scan
from trainers.data.order import Order, OrderItem
from trainers.data.report import DataReport, data_report
from trainers.data.scan import scan
from trainers.data.summary import DataSummary, summarize
from trainers.engine.captions import counters_of, weights_place
from trainers.memory.estimate import Estimate, estimate
from trainers.presets.plugins import facts_of
from trainers.presets.texts import NEVER

if TYPE_CHECKING:
    from trainers.presets.load import Loaded
    from trainers.presets.preset import Preset


@dataclass(frozen=True)
class Plan:
    """What a run will do. Counts are optimizer steps unless the name says otherwise; None means never."""

    family: str
    weights: str
    method: str
    total_steps: int
    steps_per_epoch: int
    samples_per_epoch: int
    epochs: float
    batch: int
    micro_batch: int
    accumulation: int
    ranks: int
    total_samples: int
    warmup_steps: int
    checkpoint_every: int | None
    preview_every: int | None
    validation_every: int | None
    pictures: int
    held_out: int
    buckets: tuple[tuple[int, int, int], ...]
    text_in_step: bool
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]
    memory: Estimate
    data: DataSummary

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Dataset:
    """What was found in the folders of a preset, and the order in which it is trained on. `fits` is by item id."""

    scan: Scan
    bucket_plan: BucketPlan
    fits: dict[str, Fit]
    training: tuple[Item, ...]
    held_out: tuple[Item, ...]
    order: Order
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Prepared(Dataset):
    """The plan, and the torch-free things it was made from, which the engine goes on with."""

    plan: Plan
    facts: Facts
    report: DataReport


def prepare(loaded: Loaded, *, ranks: int = 1, cache: Path | None = None) -> Prepared:
    """Scan the data and make the plan. Raises UserError with every problem found."""
    facts = facts_of(loaded.preset.model.family)
    data = read_dataset(loaded, facts, cache)
    report = _report(loaded, facts, data)
    plan = _plan(loaded, facts, data, report, ranks)
    _check_memory(loaded.preset, plan)
    return Prepared(**vars(data), plan=plan, facts=facts, report=report)


def read_dataset(loaded: Loaded, facts: Facts, cache: Path | None = None) -> Dataset:
    """Read and fit every picture. Raises UserError with every problem found."""
    preset = loaded.preset
    found = scan(preset.data, loaded.folder, cache=cache)
    found.raise_errors()
    bucket_plan = plan_buckets(preset.data, native_area=facts.native_area, size_multiple=facts.size_multiple)
    fits, too_small = bucket_plan.fit_items(found.items)
    training = tuple(item for item in found.training if item.id in fits)
    held_out = tuple(item for item in found.validation if item.id in fits)
    if not any(item.role == "train" for item in training):
        raise UserError(
            "no picture is left to train on",
            where="data",
            remedy="`trainers check PRESET --data` says why each was left out",
        )
    order = Order(
        [OrderItem(item.id, fits[item.id].bucket, item.repeats, item.weight, item.role) for item in training],
        batch=preset.data.batch,
        seed=preset.run.seed,
        prior_weight=preset.data.prior_weight,
    )
    return Dataset(found, bucket_plan, fits, training, held_out, order, (*found.left_out, *too_small))


def _report(loaded: Loaded, facts: Facts, data: Dataset) -> DataReport:
    """Everything worth knowing about the data, with tokens counted by the weights' own tokenizers."""
    preset = loaded.preset
    return data_report(
        data.scan, data.fits, data.order, counters_of(preset, facts, loaded.folder),
        left_out=data.left_out[len(data.scan.left_out) :], settings=caption_settings(preset.data), seed=preset.run.seed,
    )  # fmt: skip


def _check_memory(preset: Preset, plan: Plan) -> None:
    """Refuse what cannot fit into the memory that the preset allows, before a model is loaded."""
    limit = preset.compute.memory_limit
    if limit is None or plan.memory.total <= parse_bytes(limit):
        return
    raise UserError(
        f"training takes at least {format_bytes(plan.memory.total)}, more than the {limit} allowed",
        where="compute.memory_limit",
        remedy='allow more, train a LoRA instead of everything, or set compute.precision = "bf16" for frozen weights',
    )


def make_plan(loaded: Loaded, *, ranks: int = 1, cache: Path | None = None) -> Plan:
    """The plan of a preset, made without loading any model."""
    return prepare(loaded, ranks=ranks, cache=cache).plan


def _plan(loaded: Loaded, facts: Facts, data: Dataset, report: DataReport, ranks: int) -> Plan:
    preset = loaded.preset
    train: Any = preset.train
    order, batch = data.order, preset.data.batch
    total = _total_steps(preset, order)

    def period(text: str) -> int | None:
        if text == NEVER:
            return None
        return steps_of(parse_length(text), total_steps=total, steps_per_epoch=order.steps_per_epoch, batch=batch)

    warmup = period(preset.schedule.warmup) or 0
    if warmup >= total:
        what = f"the warm-up of {warmup} steps is as long as the run of {total}"
        raise UserError(what, where="schedule.warmup", remedy="shorten it")
    micro = _micro_batch(preset, ranks)
    buckets = _bucket_counts(data)
    return Plan(
        family=facts.title,
        weights=weights_place(preset, facts, loaded.folder),
        method=str(train.kind),
        total_steps=total,
        steps_per_epoch=order.steps_per_epoch,
        samples_per_epoch=order.samples_per_epoch,
        epochs=total / order.steps_per_epoch,
        batch=batch,
        micro_batch=micro,
        accumulation=-(-batch // (micro * ranks)),
        ranks=ranks,
        total_samples=order.samples_before(total),
        warmup_steps=warmup,
        checkpoint_every=period(preset.checkpoint.every),
        preview_every=period(preset.preview.every) if preset.preview.prompts else None,
        validation_every=period(preset.validation.every) if data.held_out else None,
        pictures=len(data.training),
        held_out=len(data.held_out),
        buckets=buckets,
        text_in_step=text_in_step(preset),
        left_out=tuple(f"{entry.path.name}: {entry.reason}" for entry in data.left_out),
        warnings=tuple(str(problem) for problem in data.scan.warnings),
        memory=estimate(facts, train, preset.compute, micro, max((height, width) for height, width, _ in buckets)),
        data=summarize(report, data.scan.items, data.fits),
    )


def _total_steps(preset: Preset, order: Order) -> int:
    length = parse_length(preset.run.length)
    if length.unit in ("minutes", "percent"):
        raise UserError(
            f'a run of "{preset.run.length}" has no number of steps, so its schedule could not be the same everywhere',
            where="run.length",
            remedy='state it in steps, samples or epochs, such as "2000 steps"',
        )
    return steps_of(length, total_steps=0, steps_per_epoch=order.steps_per_epoch, batch=preset.data.batch)


def _micro_batch(preset: Preset, ranks: int) -> int:
    """Samples at once on one rank: what the preset allows, and no more than a rank's share of the batch."""
    batch, wanted = preset.data.batch, preset.compute.micro_batch
    allowed = batch if wanted == "auto" else int(wanted)
    return max(1, min(allowed, -(-batch // ranks)))


def _bucket_counts(data: Dataset) -> tuple[tuple[int, int, int], ...]:
    """(height, width, pictures) of each bucket in use."""
    counts = Counter(data.fits[item.id].bucket for item in data.training)
    return tuple((height, width, count) for (height, width), count in sorted(counts.items()))


def text_in_step(preset: Preset) -> bool:
    """Whether captions are encoded in each step: their encoder is trained, or they vary too much to be cached."""
    train: Any = preset.train
    trained = any(part.startswith("text_encoder") for part in train.parts)
    return trained or caption_settings(preset.data).varies


def problems_of(plan: Plan) -> tuple[Problem, ...]:
    """What is odd about a plan, though not wrong: said before the start."""
    odd: list[Problem] = []
    if plan.epochs < 1:
        share = f"{plan.epochs:.0%}"
        odd.append(
            Problem("run.length", f"the run sees only {share} of the pictures", "make it at least one epoch long")
        )
    if plan.epochs > 1000 and plan.pictures > 1:
        odd.append(Problem("run.length", f"each picture is seen {plan.epochs:.0f} times", "this is likely to overfit"))
    return tuple(odd)
