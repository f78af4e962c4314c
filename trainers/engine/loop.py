"""The loop: position -> batch -> update -> callbacks, until the plan is fulfilled or somebody asks to stop."""

from __future__ import annotations

import time

from trainers.core.errors import UserError
from trainers.engine.session import Session
from trainers.engine.step import MicroBatchTooLarge, Report
from trainers.memory.shortage import free_memory


def train(session: Session) -> str:
    """Train from the session's position to the end of the plan. Returns "done" or "stopped"."""
    reason = "failed"
    try:
        for callback in session.callbacks:
            callback.on_start(session)
        while session.state.position.step < session.plan.total_steps and not session.stop:
            began = time.monotonic()
            report = update(session)
            session.step_seconds = time.monotonic() - began
            for callback in session.callbacks:
                callback.on_step(session, report)
        finished = session.state.position.step >= session.plan.total_steps
        reason = "done" if finished else "stopped"
        return reason
    finally:
        session.loader.close()
        for callback in session.callbacks:
            callback.on_stop(session, reason)


def update(session: Session) -> Report:
    """Do the next update; where memory runs out, halve the micro-batch and do the step again from the same draws."""
    step = session.state.position.step
    while True:
        batch = session.loader.step(step)
        try:
            return session.stepper.update(batch)
        except MicroBatchTooLarge as error:
            largest = max(len(micro.ids) for micro in batch.micro)
            if largest == 1:
                raise UserError(
                    "there is not enough memory for one sample at a time",
                    where=f"step {step + 1}",
                    remedy="set compute.gradient_checkpointing = true, a smaller data.area, or a LoRA of lower rank",
                ) from error
            session.loader.set_micro_batch(largest // 2)
            free_memory()
            text = f"step {step + 1}: out of memory with {largest} samples at once; going on with {largest // 2}"
            session.events.write("warning", step=step, message=text)
            session.say(f"note: {text}")
