"""What a run leaves behind for people: previews with their contact sheet, and the exported files."""

from __future__ import annotations

from pathlib import Path

from trainers.checkpoint.export import Exported
from trainers.core.errors import Interrupted
from trainers.engine.exporting import export_of
from trainers.engine.preview import PreviewSettings, paint_or_explain, save_pictures
from trainers.engine.session import Session
from trainers.engine.sheet import save_picture, sheet_over_time
from trainers.engine.signals import stop_requested


def preview_settings(session: Session) -> PreviewSettings:
    """The preset's previews with the family's own size filled in, as (height, width) in multiples it can paint."""
    from math import isqrt

    preview, facts = session.loaded.preset.preview, session.weights.facts
    side = isqrt(facts.native_area)
    width, height = preview.size or (side, side)
    step = facts.size_multiple
    size = (max(step, height // step * step), max(step, width // step * step))
    return PreviewSettings(
        session.prompts,
        preview.negative,
        size,
        preview.steps,
        preview.guidance,
        preview.seed,
        sampler=preview.sampler,
    )


def paint_preview(session: Session) -> None:
    """Paint the prompts at this step, and lay all steps out on one labelled picture."""
    painter, step = session.painter, session.state.position.step
    if painter is None:
        return
    settings = preview_settings(session)
    painter.on_step = lambda: _leave_when_asked(session)
    with session.state.evaluation_weights():
        if session.plan.text_in_step and session.text is not None:
            painter.forget()
            painter.encode(session.text, sorted({*settings.prompts, settings.negative}))
        pictures, trouble = paint_or_explain(painter, settings)
    if trouble:
        session.events.write("warning", step=step, message=trouble)
        session.say(f"warning: {trouble}")
        return
    folder = session.run.samples_of(step)
    paths = save_pictures(pictures, folder)
    session.events.write(
        "preview",
        step=step,
        prompts=list(settings.prompts),
        files=[path.relative_to(session.run.folder).as_posix() for path in paths],
    )
    write_sheet(session)


def _leave_when_asked(session: Session) -> None:
    if stop_requested(session.stop, session.run):
        raise Interrupted(session.stop.reason or "stop")


def write_sheet(session: Session) -> Path | None:
    """Write `samples/overview.png`, the same prompts over the run."""
    name = session.run.folder.name
    sheet = sheet_over_time(session.run.samples, session.prompts, name)
    if sheet is None:
        return None
    path = session.run.samples / "overview.png"
    save_picture(sheet, path)
    return path


def export_results(session: Session) -> list[Exported]:
    """Export what was trained in every layout of the preset, each reloaded and compared."""
    session.phase("exporting")
    with session.state.evaluation_weights():
        done = export_of(session).write()
    for entry in done:
        session.events.write(
            "export", step=session.state.position.step, path=entry.path.relative_to(session.run.folder).as_posix(),
            layout=entry.layout, tensors=entry.tensors, difference=entry.difference, bytes=entry.bytes,
        )  # fmt: skip
    return done
