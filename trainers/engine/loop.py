"""The loop: position -> batch -> update -> callbacks, until the plan is fulfilled or somebody asks to stop."""

from __future__ import annotations

import time

from trainers.engine.session import Session


def train(session: Session) -> str:
    """Train from the session's position to the end of the plan. Returns "done" or "stopped"."""
    reason = "failed"
    try:
        for callback in session.callbacks:
            callback.on_start(session)
        while session.state.position.step < session.plan.total_steps and not session.stop:
            began = time.monotonic()
            batch = session.loader.step(session.state.position.step)
            report = session.stepper.update(batch)
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
