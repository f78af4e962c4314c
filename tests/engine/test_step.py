"""One update: what is left out, what a dropped caption becomes, and optimizers that act together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainers.adapters._protocol import Trainable
from trainers.core.batch import Draw, Geometry, MicroBatch, Terms
from trainers.core.position import Position
from trainers.data.loader import StepBatch
from trainers.engine.state import TrainState
from trainers.engine.step import Stepper
from trainers.memory.device import Device
from trainers.optimizers._facade import Bundle

SHAPE = (1, 1, 2, 2)


class Words(nn.Module):
    """A text encoder: a caption is its length times a learned number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.seen: list[list[str]] = []


class Lengths:
    """A family whose null condition is `null`, or the empty caption where that is None."""

    def __init__(self, null: float | None) -> None:
        self.null = null

    def encode_text(self, text: Words, captions: Sequence[str]) -> list[Mapping[str, Tensor]]:
        text.seen.append(list(captions))
        return [{"context": text.scale * (1.0 + len(caption))} for caption in captions]

    def null_condition(self, text: Words) -> Mapping[str, Tensor]:
        return {"context": torch.tensor(self.null)} if self.null is not None else self.encode_text(text, [""])[0]

    def collate(self, conditions: Any, grid: Any, geometry: Any) -> Mapping[str, Tensor]:
        return {"context": torch.stack([condition["context"] for condition in conditions])}

    def predict(self, denoiser: nn.Module, x_t: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
        return denoiser(x_t) * condition["context"].view(-1, 1, 1, 1, 1)


class Plain:
    """The loss is the mean of the prediction."""

    def loss(self, predict: Any, x0: Tensor, draw: Draw, mask: Any) -> Terms:
        return Terms(predict(x0, draw.u).flatten(1).mean(1), {"t": draw.u})


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.one * x + self.two


def micro(captions: Sequence[str], dropped: Sequence[bool], value: float = 1.0) -> MicroBatch:
    count = len(captions)
    return MicroBatch(
        ids=tuple(f"id{n}" for n in range(count)), x0=torch.full((count, *SHAPE), value), condition=None,
        captions=tuple(captions), geometry=(Geometry((8, 8), (0, 0), (8, 8)),) * count,
        dropped=torch.tensor(dropped), mask=None, weight=torch.ones(count),
        draw=Draw(torch.zeros(count, *SHAPE), torch.full((count,), 0.5), {}),
    )  # fmt: skip


def stepper(family: Lengths, *, scaler: bool = False) -> Stepper:
    denoiser, text = Scale(), Words()
    pairs = [("denoiser.one", denoiser.one), ("denoiser.two", denoiser.two), ("text_encoder.scale", text.scale)]
    trainables = [Trainable(name, name.partition(".")[0], weight, "vector", None) for name, weight in pairs]
    optimizers = [
        torch.optim.SGD([{"params": [weight], "names": [name], "role": "vector"}], lr=0.1) for name, weight in pairs
    ]
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=8.0) if scaler else None
    state = TrainState(None, trainables, Bundle(optimizers), None, grad_scaler, Position())
    device = Device(torch.device("cpu"), "fp32")
    return Stepper(
        family=family, denoiser=denoiser, text=text, objective=Plain(), state=state, device=device,
        rate=lambda n: 1.0, seed=1, clip_norm=None, set_draw=None,
    )  # fmt: skip


def values(it: Stepper) -> list[float]:
    return [float(item.parameter.detach()) for item in it.state.trainables]


@pytest.mark.parametrize("null", [None, 7.0, 0.0])
def test_a_dropped_caption_is_the_familys_null_condition(null: float | None) -> None:
    it = stepper(Lengths(null))
    got = it._condition(micro(["ab", "abc", "abcd"], [False, True, False]))["context"]
    assert got.tolist() == [3.0, 1.0 if null is None else null, 5.0]
    assert it.text.seen[0] == ["ab", "", "abcd"]  # each sample keeps its place in the batch
    assert it.text.training


def test_without_a_dropped_caption_the_null_condition_is_not_made() -> None:
    it = stepper(Lengths(7.0))
    assert it._condition(micro(["ab", "abc"], [False, False]))["context"].tolist() == [3.0, 4.0]
    assert it.text.seen == [["ab", "abc"]]


@pytest.mark.parametrize("scaler", [False, True])
def test_optimizers_update_together_or_not_at_all(scaler: bool) -> None:
    """The gradient of one weight is infinite, those of the others are not; each optimizer holds one weight."""
    it = stepper(Lengths(None), scaler=scaler)
    before = values(it)
    it.denoiser.two.register_hook(lambda gradient: gradient * torch.inf)
    report = it.update(StepBatch(0, (micro(["a"], [False]),), 1.0, 1))
    assert not report.updated
    assert values(it) == before
    assert it.state.skipped_updates == 1
    assert it.state.position == Position(1, 1)
    if scaler:
        assert it.state.scaler.get_scale() == 4.0


def test_a_loss_that_is_not_finite_is_enough() -> None:
    it = stepper(Lengths(None))
    it.objective.loss = lambda *_: Terms(it.denoiser.one * torch.ones(1) + torch.inf, {"t": torch.ones(1)})
    before = values(it)
    assert not it.update(StepBatch(0, (micro(["a"], [False]),), 1.0, 1)).updated
    assert values(it) == before


def test_a_good_update_sets_the_count_back() -> None:
    it = stepper(Lengths(None))
    it.update(StepBatch(0, (micro(["a"], [False], torch.inf),), 1.0, 1))
    assert it.state.skipped_updates == 1
    assert it.update(StepBatch(1, (micro(["a"], [False]),), 1.0, 1)).updated
    assert it.state.skipped_updates == 0


def test_the_scaler_does_not_change_the_update() -> None:
    plain, scaled = stepper(Lengths(None)), stepper(Lengths(None), scaler=True)
    for it in (plain, scaled):
        it.update(StepBatch(0, (micro(["a", "b"], [False, True]),), 2.0, 2))
    assert values(plain) == values(scaled)


def test_weights_of_samples_count_against_the_whole_step() -> None:
    """Two micro-batches with weights (1, 3) are one with these weights."""
    whole, parts = stepper(Lengths(None)), stepper(Lengths(None))
    both = micro(["a", "bb"], [False, False])
    both = both.__class__(**{**vars(both), "weight": torch.tensor([1.0, 3.0])})
    single = [micro(["a"], [False]), micro(["bb"], [False])]
    single[1] = single[1].__class__(**{**vars(single[1]), "weight": torch.tensor([3.0])})
    whole.update(StepBatch(0, (both,), 4.0, 2))
    parts.update(StepBatch(0, tuple(single), 4.0, 2))
    assert values(whole) == pytest.approx(values(parts), abs=1e-6)
