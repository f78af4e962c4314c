"""Out of memory while training: the micro-batch is halved, the step done again; the curve is the undisturbed one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.tiny import Workbench, apart
from trainers.core.errors import EXIT_DONE, UserError
from trainers.engine.step import Stepper

BATCH = {"data": {"batch": 4}, "run": {"length": "6 steps"}}


@contextmanager
def room_for(samples: int, *, from_step: int = 0) -> Iterator[list[int]]:
    """A device with room for so many samples at once, from a step on; yields the sizes that were refused."""
    real, refused = Stepper.loss, []

    def loss(self: Stepper, micro: Any, total_weight: float) -> Any:
        if len(micro.ids) > samples and self.state.position.step >= from_step:
            refused.append(len(micro.ids))
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: out of memory")
        return real(self, micro, total_weight)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, "loss", loss)
        yield refused


@pytest.mark.parametrize("from_step", [0, 3])
def test_the_micro_batch_is_halved_and_nothing_else_changes(bench: Workbench, from_step: int) -> None:
    calm = bench.run(BATCH, "calm")
    with room_for(1, from_step=from_step) as refused:
        short = bench.run(BATCH, "short")
    assert short.code == EXIT_DONE
    assert refused[0] in (3, 4)  # the short step of an epoch may be the first that is too large
    assert refused[1:] == [size // 2 for size in refused[:1] if size == 4]
    assert short.losses == pytest.approx(calm.losses, rel=1e-5)
    assert apart(short.weights(6), calm.weights(6)) < 1e-4  # Adam makes more of a rounding than it was
    said = [text for text in short.warnings if "out of memory" in text]
    assert len(said) == len(refused)
    assert all(int(text.split("step ")[1].split(":")[0]) > from_step for text in said)


def test_one_sample_that_does_not_fit_is_said_in_words(bench: Workbench) -> None:
    with room_for(0), pytest.raises(UserError, match="one sample at a time"):
        bench.run(BATCH, "none")


def test_another_error_is_no_shortage(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Stepper, *arguments: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Stepper, "loss", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        bench.run(BATCH, "broken")
