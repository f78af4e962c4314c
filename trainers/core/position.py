"""Where a run stands. The position is the state: order, noise, rates and periods are functions of it."""

from __future__ import annotations

from dataclasses import dataclass

from .units import Length


@dataclass(frozen=True)
class Position:
    """`step` optimizer updates and `samples` training samples are done; both only ever grow."""

    step: int = 0
    samples: int = 0

    def advanced(self, samples: int) -> Position:
        """Return the position after one more update over `samples` samples."""
        return Position(self.step + 1, self.samples + samples)


def steps_of(length: Length, *, total_steps: int, steps_per_epoch: int, batch: int) -> int:
    """Turn a length into optimizer steps (at least 1, 0 only for 0). Minutes are no number of steps: ValueError."""
    if length.unit == "minutes":
        raise ValueError("minutes are measured while running, not planned")
    per_unit = {"steps": 1.0, "samples": 1.0 / batch, "epochs": float(steps_per_epoch), "percent": total_steps / 100.0}
    count = round(length.amount * per_unit[length.unit])
    return 0 if length.amount == 0 else max(1, count)


def due(step: int, every: int | None) -> bool:
    """Tell whether something that happens every `every` steps is due after `step` steps; None and 0 mean never."""
    return bool(every) and step > 0 and step % every == 0  # type: ignore[operator]
