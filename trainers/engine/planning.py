"""The Plan: one object, made once, that says how long, how big and how often. Free of torch.

Loop, schedule, progress bar, command line and GUI read it; nobody computes any of its numbers again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.core.errors import Problem, UserError
from trainers.core.facts import Facts
from trainers.core.position import steps_of
from trainers.core.units import Length, parse_length
from trainers.data.buckets import BucketPlan, Fit, plan_buckets
from trainers.data.captions import caption_settings
from trainers.data.items import Item, LeftOut, Scan
from trainers.data.order import Order, OrderItem
from trainers.data.scan import scan
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

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Prepared:
    """The plan and the torch-free things it was made from, which the engine goes on with."""

    plan: Plan
    facts: Facts
    scan: Scan
    bucket_plan: BucketPlan
    fits: dict[str, Fit]
    training: tuple[Item, ...]
    held_out: tuple[Item, ...]
    order: Order
    left_out: tuple[LeftOut, ...]


def prepare(loaded: Loaded, *, ranks: int = 1, cache: Path | None = None) -> Prepared:
    """Scan the data and make the plan. Raises UserError with every problem found."""
    preset = loaded.preset
    facts = facts_of(preset.model.family)
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
        batch=preset.data.batch, seed=preset.run.seed, prior_weight=preset.data.prior_weight,
    )  # fmt: skip
    left_out = (*found.left_out, *too_small)
    plan = _plan(preset, facts, order, fits, training, held_out, found, left_out, ranks)
    return Prepared(plan, facts, found, bucket_plan, fits, training, held_out, order, left_out)


def make_plan(loaded: Loaded, *, ranks: int = 1, cache: Path | None = None) -> Plan:
    """The plan of a preset, made without loading any model."""
    return prepare(loaded, ranks=ranks, cache=cache).plan


def _plan(
    preset: Preset, facts: Facts, order: Order, fits: dict[str, Fit], training: tuple[Item, ...],
    held_out: tuple[Item, ...], found: Scan, left_out: tuple[LeftOut, ...], ranks: int,
) -> Plan:  # fmt: skip
    length = parse_length(preset.run.length)
    batch = preset.data.batch
    if length.unit in ("minutes", "percent"):
        raise UserError(
            f'a run of "{preset.run.length}" has no number of steps, so its schedule could not be the same everywhere',
            where="run.length", remedy='state it in steps, samples or epochs, such as "2000 steps"',
        )  # fmt: skip
    total = steps_of(length, total_steps=0, steps_per_epoch=order.steps_per_epoch, batch=batch)

    def period(text: str) -> int | None:
        return None if text == NEVER else _period(parse_length(text), total, order.steps_per_epoch, batch)

    warmup = period(preset.schedule.warmup) or 0
    if warmup >= total:
        raise UserError(
            f"the warm-up of {warmup} steps is as long as the run of {total}",
            where="schedule.warmup",
            remedy="shorten it",
        )
    micro = min(batch, batch if preset.compute.micro_batch == "auto" else int(preset.compute.micro_batch))
    micro = max(1, min(micro, -(-batch // ranks)))
    counts: dict[tuple[int, int], int] = {}
    for item in training:
        counts[fits[item.id].bucket] = counts.get(fits[item.id].bucket, 0) + 1
    method = str(preset.train.kind)
    return Plan(
        family=facts.title, weights=preset.model.weights or facts.default_weights, method=method,
        total_steps=total, steps_per_epoch=order.steps_per_epoch, samples_per_epoch=order.samples_per_epoch,
        epochs=total / order.steps_per_epoch, batch=batch, micro_batch=micro,
        accumulation=-(-batch // (micro * ranks)), ranks=ranks, total_samples=order.samples_before(total),
        warmup_steps=warmup, checkpoint_every=period(preset.checkpoint.every),
        preview_every=period(preset.preview.every) if preset.preview.prompts else None,
        validation_every=period(preset.validation.every) if held_out else None,
        pictures=len(training), held_out=len(held_out),
        buckets=tuple((height, width, count) for (height, width), count in sorted(counts.items())),
        text_in_step=any(part.startswith("text_encoder") for part in preset.train.parts) or caption_settings(preset.data).varies,
        left_out=tuple(f"{entry.path.name}: {entry.reason}" for entry in left_out),
        warnings=tuple(str(problem) for problem in found.warnings),
        memory=estimate(facts, preset.train, preset.compute, micro, max(counts)),
    )  # fmt: skip


def _period(length: Length, total: int, steps_per_epoch: int, batch: int) -> int:
    return steps_of(length, total_steps=total, steps_per_epoch=steps_per_epoch, batch=batch)


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
