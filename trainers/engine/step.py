"""One optimizer update over the global batch of one step.

Sum(weight * loss) / Sum(weight) is formed over the whole step with a denominator known from the plan, so that any split
into micro-batches gives the same gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from trainers.adapters._protocol import draw_keys
from trainers.core.batch import Condition, Draw, MicroBatch
from trainers.core.family import Family
from trainers.data.loader import StepBatch
from trainers.engine.state import TrainState
from trainers.memory.device import Device, evaluating
from trainers.memory.shortage import is_out_of_memory
from trainers.objectives._protocol import Objective


@dataclass(frozen=True)
class Report:
    """What one update did. Tensors stay on the device until somebody needs to read them.

    loss, grad_norm: scalars; losses, times [B]: of each sample of this rank; updated: False when it was skipped.
    """

    step: int
    samples: int
    loss: Tensor
    grad_norm: Tensor
    losses: Tensor
    times: Tensor
    factor: float
    updated: bool


class MicroBatchTooLarge(Exception):  # noqa: N818 - asks for a smaller one
    """The device has not the memory for this many samples at once; no weight was changed."""


@dataclass
class Stepper:
    """Does updates. `rate(n)` is the learning-rate factor of update number n (1-based).

    `set_draw` takes the keys of a micro-batch's samples to an adapter that drops inputs; None where nothing is dropped.
    """

    family: Family
    denoiser: nn.Module
    text: nn.Module | None
    objective: Objective
    state: TrainState
    device: Device
    rate: Callable[[int], float]
    seed: int
    clip_norm: float | None
    set_draw: Callable[[Sequence[int]], None] | None

    def __post_init__(self) -> None:
        self._parameters = [trainable.parameter for trainable in self.state.trainables]
        self._null_is_empty: bool | None = None

    def update(self, batch: StepBatch) -> Report:
        """Do one update; one whose loss or gradient is not finite is left out and counted, never applied.

        Raises MicroBatchTooLarge where memory runs out; nothing has changed then.
        """
        number = self.state.position.step + 1
        factor = self.rate(number)
        self.state.optimizer.set_factor(factor)
        self.state.optimizer.zero_grad()
        try:
            losses, times, total = self._accumulate(batch, number)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.state.optimizer.zero_grad()
            raise MicroBatchTooLarge from error
        norm, updated = self._apply(total)
        if updated and self.state.averages is not None:
            self.state.averages.update(number)
        self.state.skipped_updates = 0 if updated else self.state.skipped_updates + 1
        self.state.position = self.state.position.advanced(batch.samples)
        return Report(number, batch.samples, total, norm, losses, times, factor, updated)

    def _accumulate(self, batch: StepBatch, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Run forward and backward over the micro-batches; returns losses [B], times [B] and the step's loss."""
        losses, times, parts = [], [], []
        for micro in batch.micro:
            if self.set_draw is not None:
                self.set_draw(draw_keys(self.seed, number, micro.ids))
            moved = to_device(micro, self.device.device)
            loss, terms = self.loss(moved, batch.total_weight)
            scaled = loss if self.state.scaler is None else self.state.scaler.scale(loss)
            scaled.backward()
            parts.append(loss.detach())
            losses.append(terms.loss.detach())
            times.append(terms.metrics["t"].detach())
        return torch.cat(losses), torch.cat(times), torch.stack(parts).sum()

    def loss(self, micro: MicroBatch, total_weight: float) -> tuple[Tensor, Any]:
        """The share of one micro-batch (already on the device) in the loss of the step, and its terms."""
        with self.device.autocast():
            condition = self._condition(micro)

            def predict(x_t: Tensor, t: Tensor) -> Tensor:
                return self.family.predict(self.denoiser, x_t, t, condition)

            terms = self.objective.loss(predict, micro.x0, micro.draw, micro.mask)
        return (terms.loss * micro.weight).sum() / total_weight, terms

    def _condition(self, micro: MicroBatch) -> Condition:
        """The collated condition; encoded here where the text encoder is trained."""
        if micro.condition is not None:
            return micro.condition
        if self.text is None:
            raise RuntimeError("the micro-batch brings no condition and no text encoder is loaded")
        dropped = micro.dropped.tolist()
        # Dropped samples stay in the batch as empty captions: dropout in a text encoder is keyed by place in the batch.
        captions = ["" if drop else caption for caption, drop in zip(micro.captions, dropped, strict=True)]
        singles = self.family.encode_text(self.text, captions)
        if any(dropped) and not self._null_is_empty_caption(self.text):
            null = self.family.null_condition(self.text)
            singles = [null if drop else single for single, drop in zip(singles, dropped, strict=True)]
        grid = (micro.x0.shape[2], micro.x0.shape[3], micro.x0.shape[4])
        return move_condition(self.family.collate(singles, grid, micro.geometry), self.device.device)

    def _null_is_empty_caption(self, text: nn.Module) -> bool:
        """Tell, by trying once, whether the family's null condition is the encoding of the empty caption."""
        if self._null_is_empty is None:
            with evaluating(text):
                null, empty = self.family.null_condition(text), self.family.encode_text(text, [""])[0]
            self._null_is_empty = all(name in empty and torch.equal(null[name], empty[name]) for name in null)
        return self._null_is_empty

    def _apply(self, loss: Tensor) -> tuple[Tensor, bool]:
        """Unscale, measure, clip and update; returns the gradient norm and whether the update was done.

        `loss` decides too: one that is not finite can have finite gradients (l1 of an infinite error). Several
        optimizers update together or not at all, so the scaler is not left to decide for each by itself.
        """
        scaler = self.state.scaler
        if scaler is not None:
            for optimizer in self.state.optimizer.optimizers:
                scaler.unscale_(optimizer)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients) if gradients else torch.zeros(())
        finite = bool(torch.isfinite(norm) & torch.isfinite(loss))
        if finite and self.clip_norm:
            nn.utils.clip_grads_with_norm_(self._parameters, self.clip_norm, norm)
        if finite:
            self.state.optimizer.step()
        if scaler is not None:
            scaler.update()
        return norm, finite


def to_device(micro: MicroBatch, device: torch.device) -> MicroBatch:
    """Move the tensors of a micro-batch; a no-op on the CPU."""
    if device.type == "cpu":
        return micro

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, non_blocking=True)

    draw = Draw(
        move(micro.draw.eps), move(micro.draw.u), {name: move(value) for name, value in micro.draw.extra.items()}
    )
    condition = None if micro.condition is None else move_condition(micro.condition, device)
    mask = None if micro.mask is None else move(micro.mask)
    return replace(micro, x0=move(micro.x0), condition=condition, mask=mask, weight=move(micro.weight), draw=draw)


def move_condition(condition: Mapping[str, Any], device: torch.device) -> Condition:
    """Move the tensors of a condition to the device."""
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in condition.items()}


def untrained(trainables: Sequence[Any], before: Mapping[str, Tensor]) -> list[str]:
    """Name the trainables that have not moved since `before`."""
    return [item.name for item in trainables if torch.equal(item.parameter.detach(), before[item.name])]
