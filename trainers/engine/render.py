"""The plan as lines for people. Free of torch."""

from __future__ import annotations

from collections.abc import Iterator

from trainers.core.units import format_bytes
from trainers.engine.planning import Plan, problems_of

_SHOWN = 12


def render_plan(plan: Plan) -> Iterator[str]:
    """Say what a run will use, how long it is, what it leaves out and what it takes."""
    yield "plan"
    yield f"  model       {plan.family}, weights {plan.weights}; trains: {plan.method}"
    held = f", {plan.held_out} held out for validation" if plan.held_out else ""
    yield f"  pictures    {plan.pictures}{held}; {plan.samples_per_epoch} samples in an epoch"
    shapes = ", ".join(f"{width}x{height}: {count}" for height, width, count in plan.buckets[:_SHOWN])
    more = f" and {len(plan.buckets) - _SHOWN} more shapes" if len(plan.buckets) > _SHOWN else ""
    yield f"  shapes      {shapes}{more}"
    split = f"{plan.micro_batch} at once x {plan.accumulation} accumulated x {plan.ranks} device(s)"
    yield f"  batch       {plan.batch} samples a step = {split}"
    epochs = f"{plan.epochs:.1f} epochs of {plan.steps_per_epoch} steps"
    yield f"  length      {plan.total_steps} steps = {epochs} = {plan.total_samples} samples"
    yield f"  schedule    warm-up {plan.warmup_steps} steps; {_periods(plan)}"
    if plan.text_in_step:
        yield "  captions    encoded anew in each step, because they vary or their encoder is trained"
    if plan.memory.items:
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in plan.memory.items)
        guess = "" if plan.memory.known else " and activations, which have not been measured for this family"
        yield f"  memory      about {format_bytes(plan.memory.total)}{guess} ({parts})"
    if plan.left_out:
        yield f"  left out    {len(plan.left_out)} files:"
        yield from (f"    {text}" for text in plan.left_out[:_SHOWN])
        if len(plan.left_out) > _SHOWN:
            yield f"    and {len(plan.left_out) - _SHOWN} more; `trainers check PRESET --data` lists all"
    for text in plan.warnings[:_SHOWN]:
        yield f"  note        {text}"
    for problem in problems_of(plan):
        yield f"  note        {problem}"


def _periods(plan: Plan) -> str:
    named = (
        ("checkpoint", plan.checkpoint_every),
        ("preview", plan.preview_every),
        ("validation", plan.validation_every),
    )
    return "; ".join(f"{name} every {steps} steps" for name, steps in named if steps) or "nothing in between"
