"""One run from its preset to its files: prepare, train, export; or go on where an earlier start was stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.core.atomic import clear_temporaries, replacing, write_json
from trainers.core.errors import EXIT_DONE, EXIT_RESUMABLE, Interrupted, UserError
from trainers.engine.planning import Prepared, prepare
from trainers.engine.progress import Progress
from trainers.engine.render import render_plan
from trainers.engine.signals import StopRequest, listening
from trainers.memory.collector import collector_paused
from trainers.rundir import control, lock
from trainers.rundir.events import EventLog
from trainers.rundir.heartbeat import Heartbeat
from trainers.rundir.layout import RunDir

if TYPE_CHECKING:
    from trainers.engine.session import Session
    from trainers.presets.load import Loaded

Say = Callable[[str], None]


def run(loaded: Loaded, folder: Path, *, cache: Path | None = None, quiet: bool = False) -> int:
    """Train a preset in `folder`; starting again in the same folder resumes. Returns the exit code."""
    directory = RunDir(folder).create()
    progress = Progress(quiet)
    say: Say = progress.say
    with (
        lock.hold(directory),
        listening(StopRequest()) as stop,
        EventLog(directory.events) as events,
        Heartbeat(events),
    ):
        control.clear(directory)
        for place in (directory.samples, directory.exports):
            clear_temporaries(place)
        try:
            return _run(loaded, directory, events, stop, progress, say, cache or directory.folder.parent / ".cache")
        except Interrupted as reason:
            events.write("status", state="stopped", message=str(reason))
            say(f"stopped while preparing; what was made is kept. Go on with: trainers resume {directory.folder}")
            return EXIT_RESUMABLE
        except BaseException as error:
            with suppress(OSError):
                _tell_failure(events, error)
            raise


def _run(
    loaded: Loaded, directory: RunDir, events: EventLog, stop: StopRequest, progress: Progress, say: Say, cache: Path
) -> int:
    """The run itself, inside its lock."""
    loaded = _keep_preset(loaded, directory)
    events.write("status", state="preparing", message="reading the pictures")
    say(f"run {directory.folder}")
    for note in loaded.notes:
        say(f"note: {note}")
    _say_changes(loaded, directory, events, say)
    prepared = _prepare(loaded, directory, cache, events, stop, say)
    _write_down(loaded, directory, prepared)
    events.write("plan", plan=prepared.plan.to_json())
    for line in render_plan(prepared.plan):
        say(line)
    with collector_paused():  # brings torch
        from trainers.engine.assemble import assemble

    session = assemble(loaded, directory, prepared, events, stop, progress, say, cache)
    return _train_and_export(session)


def _keep_preset(loaded: Loaded, directory: RunDir) -> Loaded:
    """Write the preset into the run's folder, complete in itself, and read it back: what runs is what is kept."""
    from trainers.presets.freeze import frozen_text
    from trainers.presets.load import load_preset

    text = frozen_text(loaded, directory.folder).encode()
    if not directory.preset.exists() or directory.preset.read_bytes() != text:
        with replacing(directory.preset) as candidate:
            candidate.write_bytes(text)
            load_preset(candidate)  # a preset that cannot be read back never takes the place of one that can
    return load_preset(directory.preset)


def _prepare(loaded: Loaded, directory: RunDir, cache: Path, events: EventLog, stop: StopRequest, say: Say) -> Prepared:
    """Plan; where class pictures are still to be made, make them with the base model first."""
    from trainers.engine.class_pictures import make_missing

    make_missing(loaded, directory, events, stop, say)
    return prepare(loaded, cache=cache)


def _tell_failure(events: EventLog, error: BaseException) -> None:
    """Write why the run ended; the traceback only where it was no mistake of the user's."""
    import traceback

    message = str(error) or type(error).__name__
    details = "" if isinstance(error, UserError) else "".join(traceback.format_exception(error))
    events.write("error", message=message, details=details)
    events.write("status", state="failed", message=message.splitlines()[0])


def _train_and_export(session: Session) -> int:
    from trainers.engine.loop import train
    from trainers.engine.results import export_results, write_sheet

    total = session.plan.total_steps
    try:
        reason = train(session)
    finally:
        session.loader.close()
    step = session.state.position.step
    if reason == "stopped":
        session.events.write("status", state="stopped", message=session.stop.reason or "", step=step)
        saved = "not saved" if session.stop.reason == "stop_now" else "saved"
        session.say(f"stopped at step {step} of {total}, {saved}. Go on with: trainers resume {session.run.folder}")
        return EXIT_RESUMABLE
    exports = export_results(session)
    for entry in exports:
        session.say(f"exported and verified: {entry.sentence()}")
    sheet = write_sheet(session)
    session.events.write("status", state="done", step=step)
    _say_where(session, exports[0].path if exports else None, sheet)
    return EXIT_DONE


def _say_where(session: Session, exported: Path | None, sheet: Path | None) -> None:
    """The closing lines: where everything lies and how to use it."""
    from trainers.engine.build import local_or_hub

    session.say("")
    session.say(f"done: {session.plan.total_steps} steps. Everything lies in {session.run.folder}")
    if sheet is not None:
        session.say(f"  before and after:  {sheet}")
    if exported is not None:
        kind = session.state.adapter.kind_of_export
        rest = f'--prompt "{(session.prompts or ("a prompt of yours",))[0]}" --out picture.png'
        session.say(f"  {'LoRA file' if kind == 'lora' else 'model'}:         {exported}")
        session.say(f'  try it:            trainers sample "{session.run.folder}" {rest}')
        if kind == "lora":
            weights = session.loaded.preset.model.weights or session.weights.facts.default_weights
            base = local_or_hub(weights, session.loaded.folder)
            session.say(f'  the file alone:    trainers sample "{exported}" --base "{base}" {rest}')
            session.say("  in ComfyUI:        copy the file to ComfyUI/models/loras and add a Load LoRA node")
            session.say(f'  in diffusers:      pipeline.load_lora_weights("{exported}")')


def _write_down(loaded: Loaded, directory: RunDir, prepared: Prepared) -> None:
    """Keep the resolved preset, what was found in the folders, and the plan."""
    from trainers.presets.preset import resolve

    resolved = resolve(loaded.preset, prepared.facts)
    write_json(directory.resolved, {"digest": loaded.digest, "preset": resolved.values()})
    write_json(directory.data, prepared.report.as_json())
    write_json(directory.plan, prepared.plan.to_json())


def _say_changes(loaded: Loaded, directory: RunDir, events: EventLog, say: Say) -> None:
    """Starting again with another preset: show what is different, before it has an effect."""
    import json

    if not directory.resolved.exists():
        return
    before = json.loads(directory.resolved.read_text(encoding="utf-8"))
    if before.get("digest") == loaded.digest:
        return
    say("the preset has changed since this run was started:")
    found = differences(before.get("preset", {}), loaded.preset.values())
    changes = [f"{name}: {old!r} -> {new!r}" for name, old, new in found]
    for change in changes:
        say(f"  {change}")
    say("lengths are totals: steps that are done stay done, the schedule follows the new numbers from here")
    events.write("warning", message="the preset has changed: " + "; ".join(changes))


def differences(old: object, new: object, prefix: str = "") -> list[tuple[str, object, object]]:
    """The leaves in which two trees of plain values differ, where the new tree says something."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in new
            for found in differences(old.get(key), new[key], f"{prefix}.{key}" if prefix else str(key))
        ]
    return [] if old == new else [(prefix, old, new)]


def require_run(folder: Path) -> RunDir:
    """The run directory of a run that exists."""
    directory = RunDir(folder)
    if not directory.preset.exists():
        raise UserError(
            "this is no run directory", where=str(folder), remedy="name a folder that `trainers run` has made"
        )
    return directory
