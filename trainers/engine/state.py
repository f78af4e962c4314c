"""Everything that training changes, and its form in a checkpoint. The rest is a pure function of the position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainers.adapters._protocol import Adapter, Trainable
from trainers.checkpoint.tensors import read_state, write_state
from trainers.core.errors import UserError
from trainers.core.position import Position
from trainers.engine.averages import Averages
from trainers.optimizers._facade import Bundle


@dataclass
class TrainState:
    """The trained weights, their optimizer, averages and scaler, and where the run stands."""

    adapter: Adapter
    trainables: Sequence[Trainable]
    optimizer: Bundle
    averages: Averages | None
    scaler: torch.amp.GradScaler | None
    position: Position
    skipped_updates: int = 0

    def write(self, folder: Path) -> None:
        """Write the state into a (staging) folder. Raises UserError rather than store a non-finite weight."""
        weights = self.weights()
        broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
        if broken:
            raise UserError(
                f"{len(broken)} trained weights are not finite, first {broken[0]}; nothing was saved",
                remedy="the last checkpoint is still good: resume from it with a lower optimizer.lr",
            )
        write_state(folder, "weights", weights)
        write_state(folder, "optimizer", self.optimizer.state_dict())
        if self.averages is not None:
            write_state(folder, "averages", self.averages.state())
        write_state(folder, "progress", self.progress())

    def read(self, folder: Path) -> None:
        """Take everything back from a checkpoint folder."""
        weights = read_state(folder, "weights")
        with torch.no_grad():
            for trainable in self.trainables:
                if trainable.name not in weights or weights[trainable.name].shape != trainable.parameter.shape:
                    raise UserError(
                        f"the checkpoint does not hold {trainable.name} in this shape", where=str(folder),
                        remedy="it belongs to another [train] section; start a new run or restore the preset",
                    )  # fmt: skip
                trainable.parameter.copy_(weights[trainable.name])
        self.optimizer.load_state_dict(read_state(folder, "optimizer"))
        if self.averages is not None:
            self.averages.load(read_state(folder, "averages"))
        progress = read_state(folder, "progress")
        self.position = Position(progress["step"], progress["samples"])
        self.skipped_updates = progress["skipped_updates"]
        if self.scaler is not None and progress["scaler"]:
            self.scaler.load_state_dict(progress["scaler"])

    def weights(self) -> dict[str, torch.Tensor]:
        """The live trained tensors by canonical name."""
        return {trainable.name: trainable.parameter.detach() for trainable in self.trainables}

    def progress(self) -> dict[str, Any]:
        """The plain numbers of the state."""
        return {
            "step": self.position.step,
            "samples": self.position.samples,
            "skipped_updates": self.skipped_updates,
            "scaler": self.scaler.state_dict() if self.scaler is not None else {},
        }

    @contextmanager
    def evaluation_weights(self, *, averaged: bool = True) -> Iterator[None]:
        """The weights that previews, validation and exports use: optimizer in evaluation mode, averages where kept."""
        with ExitStack() as stack:
            stack.enter_context(self.optimizer.evaluation())
            if averaged and self.averages is not None:
                stack.enter_context(self.averages.applied())
            yield
