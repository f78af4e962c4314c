"""What happens beside training: the proof, metrics, validation, previews, checkpoints, requests from outside.

They run in the order of `standard`: previews and validation before the checkpoint of the same step, so that a run that
is killed in between does them again after it resumes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from trainers.checkpoint.store import DiskFull, save
from trainers.core.errors import Interrupted, UserError
from trainers.core.position import due
from trainers.engine import proof, results
from trainers.engine.evaluate import validate
from trainers.engine.session import Callback, Quiet, Session
from trainers.engine.step import Report
from trainers.rundir import control


class Prove(Quiet):
    """Proves within the first updates that everything trainable trains; otherwise the run is stopped with names."""

    def __init__(self) -> None:
        self._witness: proof.Witness | None = None
        self._left = proof.STEPS

    def on_start(self, session: Session) -> None:
        """Remember how the weights look before the first update."""
        self._left = min(proof.STEPS, session.plan.total_steps - session.state.position.step)
        if self._left > 1:  # the first update proves nothing: while a LoRA's B is zero, its A has no gradient
            self._witness = proof.Witness(session.state.trainables)

    def on_step(self, session: Session, report: Report) -> None:
        """Watch, and conclude after a few updates."""
        if self._witness is None or not report.updated:
            return
        self._witness.look()
        self._left -= 1
        if self._left > 0 or report.factor == 0:
            return
        found = self._witness.conclude()
        self._witness = None
        session.events.write("proof", step=report.step, holds=found.holds, message=found.sentence())
        if found.holds:
            session.say(f"proof: {found.sentence()}")
            return
        names = [*found.not_finite, *found.without_gradient, *found.not_moved]
        if len(set(names)) == found.total:
            raise UserError(
                f"nothing trains: {found.sentence()}", where="train", remedy="check train.parts and optimizer.lr"
            )
        session.events.write("warning", step=report.step, message=found.sentence())
        session.say(f"warning: {found.sentence()}")


_SCALER_LIMIT = 25  # a loss scale that is searched from 2**16 down leaves out up to sixteen updates by design


class GuardFinite(Quiet):
    """Counts updates that were left out because a number was not finite; too many in a row end the run."""

    def on_step(self, session: Session, report: Report) -> None:
        """Say it, and stop after `step.nan_limit` in a row."""
        if report.updated:
            return
        count, limit = session.state.skipped_updates, session.loaded.preset.step.nan_limit
        scaling = session.state.scaler is not None
        session.events.write(
            "warning",
            step=report.step,
            message=f"update {report.step} left out: a gradient is not finite ({count} in a row)",
        )
        if (count >= limit and not scaling) or count >= max(limit, _SCALER_LIMIT):
            raise UserError(
                f"{count} updates in a row had gradients that are not finite, the last at step {report.step}",
                where=f"step {report.step}",
                remedy="the last checkpoint is good; resume it with a lower optimizer.lr, or compute.precision bf16",
            )


class Validate(Quiet):
    """Measures the loss on held-out samples when due, before the first update and after the last."""

    def __init__(self) -> None:
        self._done = -1

    def on_start(self, session: Session) -> None:
        """Measure where the run starts from."""
        if session.held_out and session.state.position.step == 0 and session.plan.validation_every:
            self._measure(session)

    def on_step(self, session: Session, report: Report) -> None:
        """Measure when due."""
        last = report.step == session.plan.total_steps
        if session.held_out and (
            due(report.step, session.plan.validation_every) or (last and session.plan.validation_every)
        ):
            self._measure(session)

    def _measure(self, session: Session) -> None:
        step = session.state.position.step
        preset = session.loaded.preset
        with session.state.evaluation_weights():
            found = validate(session.stepper, session.held_out, preset.validation.times, preset.run.seed)
        session.events.write("validation", step=step, loss=found.loss, by_time=found.by_quantile)
        session.say(f"step {step}: validation loss {found.loss:.4f}")


class Preview(Quiet):
    """Paints the prompts when due. A preview that does not fit is left out and said; it never ends the run."""

    def on_start(self, session: Session) -> None:
        """Paint what the model knows before the first update, or a preview that was cut off by a stop."""
        step = session.state.position.step
        wanted = session.loaded.preset.preview.at_start if step == 0 else due(step, session.plan.preview_every)
        last = session.run.samples_of(step) / f"{len(session.prompts) - 1:02d}.png"
        if wanted and not last.exists():
            self.paint(session)

    def on_step(self, session: Session, report: Report) -> None:
        """Paint when due."""
        last = report.step == session.plan.total_steps
        if due(report.step, session.plan.preview_every) or (last and session.loaded.preset.preview.at_end):
            self.paint(session)

    def paint(self, session: Session) -> None:
        """Paint now."""
        if session.painter is None or not session.prompts:
            return
        session.phase("sampling")
        try:
            results.paint_preview(session)
        except Interrupted:
            session.say("the preview was cut off; it is painted when the run goes on")
        session.phase("training")


class Checkpoint(Quiet):
    """Saves when due by steps or minutes, and whenever the run stops."""

    def __init__(self) -> None:
        self._last_time = time.monotonic()
        self._saved = -1

    def on_start(self, session: Session) -> None:
        """A resumed run starts at a checkpoint, so that step need not be saved again."""
        self._saved = session.resumed_from if session.resumed_from else -1

    def on_step(self, session: Session, report: Report) -> None:
        """Save when due."""
        minutes = session.loaded.preset.checkpoint.minutes
        late = minutes is not None and time.monotonic() - self._last_time >= 60 * minutes
        if due(report.step, session.plan.checkpoint_every) or late:
            self.save(session)

    def on_stop(self, session: Session, reason: str) -> None:
        """Save what a stopped or finished run has reached, unless it was asked to end without."""
        if reason == "stopped" and session.stop.reason == "stop_now":
            return
        if reason in ("stopped", "done") and session.state.position.step != self._saved:
            self.save(session)

    def save(self, session: Session) -> None:
        """Save now; a full disk is said, and training goes on with the older checkpoints untouched."""
        for callback in session.callbacks:
            callback.on_save(session)
        step = session.state.position.step
        session.phase("saving")
        try:
            path = save(
                session.run.folder, step, session.state.write, {"step": step, "preset": session.loaded.digest},
                keep=session.loaded.preset.checkpoint.keep, need_bytes=_state_bytes(session),
            )  # fmt: skip
            session.events.write("checkpoint", step=step, path=path.name)
            self._saved = step
        except DiskFull as error:
            session.events.write("warning", step=step, message=str(error))
            session.say(f"warning: {error}")
            if session.stop:
                raise
        self._last_time = time.monotonic()
        session.phase("training")


class Control(Quiet):
    """Obeys requests put into the run directory: stop, save, preview."""

    def __init__(self, checkpoint: Checkpoint, preview: Preview, seconds: float = 0.5) -> None:
        self._checkpoint, self._preview, self._seconds = checkpoint, preview, seconds
        self._last = 0.0

    def on_step(self, session: Session, report: Report) -> None:
        """Look for requests a few times a second."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return
        self._last = now
        for request in control.poll(session.run):
            session.events.write("request", step=report.step, id=request.id, name=request.name, answer="heard")
            if request.name in ("stop", "stop_now"):
                session.stop.ask(request.name)
            elif request.name == "save":
                self._checkpoint.save(session)
            elif request.name == "preview":
                self._preview.paint(session)
            control.answer(session.run, request)
            session.events.write("request", step=report.step, id=request.id, name=request.name, answer="done")


def _state_bytes(session: Session) -> int:
    """An upper bound of a checkpoint's size: weights, averages and two optimizer moments in float32."""
    numbers = sum(trainable.parameter.numel() for trainable in session.state.trainables)
    copies = 3 + (1 if session.state.averages is not None else 0)
    return numbers * 4 * copies


def standard(metrics: Callback) -> Sequence[Callback]:
    """The callbacks of every run, in their order."""
    checkpoint, preview = Checkpoint(), Preview()
    return (Prove(), GuardFinite(), metrics, Validate(), preview, checkpoint, Control(checkpoint, preview))
