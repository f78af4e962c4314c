"""Metrics: buffered on the device, written to events.jsonl and TensorBoard, shown as a live line.

A resumed run does the steps after its checkpoint again. They are compared with what was logged the first time: equal
ones are not written twice, a difference is reported, because it would mean that the resume was not exact.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from trainers.core.units import format_seconds
from trainers.engine.progress import Progress
from trainers.engine.session import Quiet, Session
from trainers.engine.step import Report
from trainers.rundir.events import MetricEvent, read

_FLUSH_SECONDS = 1.0
_FLUSH_STEPS = 50
BANDS = 4


class Metrics(Quiet):
    """Collects reports and brings them to the disk and to the screen."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._buffer: list[tuple[Report, float, float]] = []
        self._last_flush = time.monotonic()
        self._speeds: deque[tuple[float, int]] = deque(maxlen=50)
        self._smooth: float | None = None
        self._logged: dict[int, float] = {}
        self._board: Any = None

    def on_start(self, session: Session) -> None:
        """Look up what was logged beyond the checkpoint, open TensorBoard, start the bar."""
        start = session.state.position.step
        if session.resumed_from:
            logged = (event for event in read(session.run.events) if isinstance(event, MetricEvent))
            self._logged = {event.step: event.loss for event in logged if event.step > start}
        if session.loaded.preset.logging.tensorboard:
            self._board = _open_board(session, start)
        self._progress.start(start, session.plan.total_steps)
        session.phase("training")

    def on_step(self, session: Session, report: Report) -> None:
        """Buffer; flush at most about once a second."""
        now = time.monotonic()
        self._speeds.append((session.step_seconds, report.samples))
        self._buffer.append((report, max(session.state.optimizer.rates().values()), self.samples_per_second()))
        if now - self._last_flush >= _FLUSH_SECONDS or len(self._buffer) >= _FLUSH_STEPS:
            self._flush(session)

    def on_save(self, session: Session) -> None:
        """Nothing before a checkpoint may be lost."""
        self._flush(session)

    def on_stop(self, session: Session, reason: str) -> None:  # noqa: ARG002 - the callback's signature
        """Flush and close."""
        self._flush(session)
        self._progress.stop()
        if self._board is not None:
            self._board.close()

    def samples_per_second(self) -> float:
        """Speed of the last updates themselves, waiting for data included, previews and saves left out."""
        seconds = sum(seconds for seconds, _ in self._speeds)
        return sum(count for _, count in self._speeds) / seconds if seconds > 0 else 0.0

    def _flush(self, session: Session) -> None:
        every = session.loaded.preset.logging.every
        samples = session.state.position.samples - sum(report.samples for report, _, _ in self._buffer)
        for report, rate, speed in self._buffer:
            samples += report.samples
            loss = float(report.loss)
            if report.updated:
                self._smooth = loss if self._smooth is None else 0.95 * self._smooth + 0.05 * loss
            if report.step % every == 0 or report.step == session.plan.total_steps:
                self._write(session, report, samples, loss, rate, speed)
        if self._buffer:
            self._show(session)
        self._buffer.clear()
        self._last_flush = time.monotonic()

    def _write(self, session: Session, report: Report, samples: int, loss: float, rate: float, speed: float) -> None:
        values: dict[str, Any] = {
            "loss": loss, "lr": rate, "grad_norm": float(report.grad_norm), "samples_per_second": round(speed, 3),
        }  # fmt: skip
        if session.state.scaler is not None:
            values["loss_scale"] = session.state.scaler.get_scale()
        if report.step in self._logged:
            self._compare(session, report.step, loss)
        else:
            session.events.write("metric", step=report.step, samples=samples, **values, **loss_bands(report))
        if self._board is not None:  # it was told to forget what comes after the checkpoint (purge_step)
            for name, value in values.items():
                self._board.add_scalar(f"train/{name}", value, report.step)

    def _compare(self, session: Session, step: int, loss: float) -> None:
        """Compare a step that is done again with what was logged the first time."""
        before = self._logged.pop(step)
        if before != loss and not (math.isnan(before) and math.isnan(loss)):
            text = f"step {step} gave loss {loss!r} after resuming, {before!r} before: the resume was not exact"
            session.events.write("warning", step=step, message=text)

    def _show(self, session: Session) -> None:
        report, rate, speed = self._buffer[-1]
        left = session.plan.total_samples - session.state.position.samples
        remaining = format_seconds(left / speed) if speed > 0 else "?"
        self._progress.show(report.step, float(report.loss), self._smooth or float(report.loss), rate, speed, remaining)


def loss_bands(report: Report) -> Mapping[str, float]:
    """Mean loss per quarter of time, where this step had samples in it: {"loss_t0.00-0.25": 0.12, ...}."""
    bands: dict[str, float] = {}
    index = (report.times.float() * BANDS).floor().clamp(0, BANDS - 1).to(torch.int64)
    for band in range(BANDS):
        chosen = report.losses[index == band]
        if chosen.numel():
            bands[f"loss_t{band / BANDS:.2f}-{(band + 1) / BANDS:.2f}"] = float(chosen.float().mean())
    return bands


def _open_board(session: Session, start: int) -> Any:
    """Open the TensorBoard writer, or say why there is none."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        session.say("TensorBoard is not installed; its log is left out (events.jsonl has everything)")
        return None
    return SummaryWriter(str(session.run.logs / "tensorboard"), purge_step=start + 1 if start else None)
