"""The plan as lines for people. Free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainers.core.units import format_bytes
from trainers.data.summary import CutGroup, DataSummary
from trainers.engine.planning import Plan, problems_of

_SHOWN = 12
_NAMED = 5


def render_plan(plan: Plan) -> Iterator[str]:
    """Say what a run will use, how long it is, what it leaves out and what it takes."""
    yield "plan"
    yield f"  model       {plan.family}, weights {_weights(plan.weights)}; trains: {plan.method}"
    held = f", {plan.held_out} held out for validation" if plan.held_out else ""
    copies = f", {plan.data.duplicates} with the content of another" if plan.data.duplicates else ""
    yield f"  pictures    {plan.pictures}{held}{copies}; {plan.samples_per_epoch} samples in an epoch"
    shapes = ", ".join(f"{width}x{height}: {count}" for height, width, count in plan.buckets[:_SHOWN])
    more = f" and {len(plan.buckets) - _SHOWN} more shapes" if len(plan.buckets) > _SHOWN else ""
    yield f"  shapes      {shapes}{more}"
    yield from _fitting(plan.data)
    yield f"  captions    {_captions(plan.data)}"
    split = f"{plan.micro_batch} at once x {plan.accumulation} accumulated x {plan.ranks} device(s)"
    yield f"  batch       {plan.batch} samples a step = {split}"
    epochs = f"{plan.epochs:.1f} epochs of {plan.steps_per_epoch} steps"
    yield f"  length      {plan.total_steps} steps = {epochs} = {plan.total_samples} samples"
    yield f"  schedule    warm-up {plan.warmup_steps} steps; {_periods(plan)}"
    if plan.text_in_step:
        yield "  text        encoded anew in each step, because they vary or their encoder is trained"
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


def _weights(place: str) -> str:
    """Write a path as short as it is clear: below the current folder or the home, else whole."""
    path = Path(place)
    if not path.is_absolute():
        return place
    for folder, sign in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path != folder and path.is_relative_to(folder):
            return sign + path.relative_to(folder).as_posix()
    return place


def _fitting(data: DataSummary) -> Iterator[str]:
    """Say what scaling and cutting does to the pictures, where it does something that can be seen."""
    said = []
    name, share = data.crop_most
    if share >= 0.005:
        said.append(f"at most {share:.0%} of a picture is cut off ({name})")
    if data.enlarged:
        name, scale = data.scale_most
        said.append(f"{_count(data.enlarged, 'is', 'are')} enlarged, at most to {scale:.0%} ({name})")
    if data.kept_small:
        said.append(f"{_count(data.kept_small, 'is', 'are')} kept small")
    if said:
        yield f"  fitting     {'; '.join(said)}"


def _captions(data: DataSummary) -> str:
    """Say where the captions come from, and which of them a text encoder does not see to the end."""
    kinds = (
        (data.found, "found"),
        (data.empty, "empty"),
        (data.missing, "missing"),
        (data.made, "made by template or name"),
    )
    counts = ", ".join(f"{count} {kind}" for count, kind in kinds if count)
    cuts = [_cut(group) for group in data.cut or ()]
    if data.cut is not None and not cuts:
        cuts = ["none is cut"]
    return "; ".join([counts, *cuts])


def _cut(group: CutGroup) -> str:
    encoders = " and ".join(group.encoders)
    names = _names(group.pictures, group.count)
    return f"{_count(group.count, 'is', 'are')} cut by {encoders} at {group.fits} tokens: {names}"


def _names(names: Sequence[str], count: int) -> str:
    more = f" and {count - _NAMED} more" if count > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _periods(plan: Plan) -> str:
    named = (
        ("checkpoint", plan.checkpoint_every),
        ("preview", plan.preview_every),
        ("validation", plan.validation_every),
    )
    return "; ".join(f"{name} every {steps} steps" for name, steps in named if steps) or "nothing in between"
