"""Checks across tables, with the family's facts at hand: settings that contradict each other or have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainers.core.errors import Problem, nearest
from trainers.core.facts import Facts
from trainers.core.plugin import Config

from .lines import Path
from .preset import Preset, layouts_of

Where = Callable[[Path], str]
Finding = tuple[Path, str, str]
"""Key, what is wrong, remedy."""


def problems(preset: Preset, facts: Facts, where: Where) -> list[Problem]:
    """Return what makes this preset impossible or misleading."""
    found = [
        *_schedule(preset), *_sizes(preset, facts), *_layouts(preset, facts), *_train(preset, facts), *_data(preset),
    ]  # fmt: skip
    return [Problem(where(path), what, remedy) for path, what, remedy in found]


def notes(preset: Preset) -> list[str]:
    """Return what has no effect because something is switched off; it is kept for when it is switched on again."""
    found: list[str] = []
    if not preset.ema.enabled and _changed(preset.ema):
        found.append("the settings in [ema] have no effect while ema.enabled is false")
    if not preset.preview.prompts and _changed(preset.preview):
        found.append("the settings in [preview] have no effect without preview.prompts")
    return found


def _changed(table: Config) -> list[str]:
    """List the keys of a table that are not at their defaults. Writing a default down asks for nothing."""
    fields = type(table).model_fields
    return [name for name in fields if getattr(table, name) != fields[name].get_default(call_default_factory=True)]


def _schedule(preset: Preset) -> Iterator[Finding]:
    users = {"cycles": ("cosine",), "power": ("polynomial",), "floor": ("linear", "cosine", "polynomial")}
    for name in _changed(preset.schedule):
        kinds = users.get(name, (preset.schedule.kind,))
        if preset.schedule.kind not in kinds:
            wanted = " or ".join(f'"{kind}"' for kind in kinds)
            what = f'{name} has no effect with kind = "{preset.schedule.kind}"'
            yield ("schedule", name), what, f"remove it, or write kind = {wanted}"


def _sizes(preset: Preset, facts: Facts) -> Iterator[Finding]:
    micro, batch = preset.compute.micro_batch, preset.data.batch
    if micro != "auto" and micro > batch:
        what = f"a micro-batch of {micro} is larger than the whole step of data.batch = {batch}"
        yield ("compute", "micro_batch"), what, f'write micro_batch = {batch} or less, or "auto"'
    for side in preset.preview.size or ():
        if side % facts.size_multiple:
            near = max(1, round(side / facts.size_multiple)) * facts.size_multiple
            what = f"{facts.title} paints sizes that are multiples of {facts.size_multiple}, and {side} is not"
            yield ("preview", "size"), what, f"write {near}"


def _layouts(preset: Preset, facts: Facts) -> Iterator[Finding]:
    known = layouts_of(preset, facts)
    for number, layout in enumerate(preset.export.layouts or ()):
        if layout not in known:
            hint = nearest(layout, known)
            remedy = (f'did you mean "{hint}"? ' if hint else "") + f"known: {', '.join(known)}"
            yield ("export", "layouts", number), f'"{layout}" is no layout of {facts.title}', remedy


def _train(preset: Preset, facts: Facts) -> Iterator[Finding]:
    known = ("denoiser", *facts.text_encoders)
    parts: Any = getattr(preset.train, "parts", ())
    for number, part in enumerate(parts):
        if part not in known:
            yield ("train", "parts", number), f'{facts.title} has no part "{part}"', f"parts are {', '.join(known)}"
    targets: Any = getattr(preset.train, "targets", None)
    if isinstance(targets, str) and facts.targets and targets not in facts.targets:
        hint = nearest(targets, list(facts.targets))
        sets = ", ".join(facts.targets)
        remedy = (f'did you mean "{hint}"? ' if hint else "") + f"known: {sets}; or a list of patterns"
        yield ("train", "targets"), f'"{targets}" is no set of layers of {facts.title}', remedy


def _data(preset: Preset) -> Iterator[Finding]:
    held_out = preset.data.validation_share or any(concept.role == "validation" for concept in preset.data.concepts)
    if not held_out and _changed(preset.validation):
        what = "[validation] has no effect, since no picture is held out"
        remedy = 'set data.validation_share, or give a concept role = "validation"; or remove [validation]'
        yield ("validation",), what, remedy
