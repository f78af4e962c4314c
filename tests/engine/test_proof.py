"""The proof that training trains names what does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.tiny import Finished, Workbench
from trainers.adapters._lora_layer import LoraLinear
from trainers.adapters._protocol import Trainable
from trainers.core.errors import EXIT_DONE, UserError
from trainers.engine.proof import Witness


def weight(name: str) -> Trainable:
    return Trainable(name, "denoiser", nn.Parameter(torch.ones(3)), "vector", None)


def test_each_kind_of_failure_is_named() -> None:
    good, loose, still, broken = (weight(name) for name in ("good", "loose", "still", "broken"))
    witness = Witness([good, loose, still, broken])
    for item in (good, still, broken):
        item.parameter.grad = torch.ones(3)
    broken.parameter.grad[1] = torch.nan
    witness.look()
    for item, change in ((good, 0.1), (broken, 0.1), (loose, 0.1), (still, 0.0)):
        item.parameter.data += change
    proof = witness.conclude()
    assert not proof.holds
    assert proof.without_gradient == ("loose",)
    assert proof.not_finite == ("broken",)
    assert proof.not_moved == ("still",)
    for name in ("loose", "still", "broken"):
        assert name in proof.sentence()


def test_a_learning_rate_of_zero_moves_nothing() -> None:
    item = weight("denoiser.w")
    witness = Witness([item])
    optimizer = torch.optim.AdamW([item.parameter], lr=0.0)
    for _ in range(4):
        item.parameter.grad = torch.ones(3)
        optimizer.step()
        witness.look()
    assert witness.conclude().not_moved == ("denoiser.w",)


def test_a_module_that_was_cut_off_is_named_and_the_run_goes_on(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LoraLinear._added

    def added(self: LoraLinear, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        changed = real(self, out, x)
        return out + (changed - out).detach() if self._index == 5 else changed

    monkeypatch.setattr(LoraLinear, "_added", added)
    run = bench.run()
    assert run.code == EXIT_DONE
    proof = next(event for event in run.events if event.type == "proof")
    assert not proof.holds
    assert "2 never had a non-zero gradient" in proof.message
    assert "transformer_blocks" in proof.message
    assert proof.message in run.warnings


def test_a_run_in_which_nothing_trains_is_ended(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def added(self: LoraLinear, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return out + 0.0 * (self.lora_A.sum() + self.lora_B.sum())

    monkeypatch.setattr(LoraLinear, "_added", added)
    with pytest.raises(UserError, match="nothing trains: of 256"):
        bench.run({"optimizer": {"weight_decay": 0.0}})
    assert Finished(bench.folder / "runs" / "run", 1).events[-1].state == "failed"


def test_a_sound_run_is_proven(bench: Workbench) -> None:
    run = bench.run({"data": {"area": "128px"}})  # at 64 pixels the middle has one token: no attention to be learned
    proofs: list[Any] = [event for event in run.events if event.type == "proof"]
    assert [proof.holds for proof in proofs] == [True]
    assert not run.warnings
