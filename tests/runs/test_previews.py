"""Previews and validation leave no trace in a run; one that does not fit into memory is left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from PIL import Image

from tests.pictures import make_pictures
from tests.tiny import Finished, Workbench, same
from trainers.core.errors import EXIT_DONE
from trainers.engine.preview import Painter

PREVIEW: dict[str, Any] = {
    "prompts": ["a red circle", "a blue square"], "every": "2 steps", "steps": 2, "size": [64, 64],
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"train": {"dropout": 0.2}},
    "ema": {"ema": {"enabled": True, "decay": 0.9}},
    "schedule_free": {"optimizer": {"kind": "schedule_free", "lr": 1e-2}},
    "text encoder": {"train": {"parts": ["denoiser", "text_encoder"]}},
}


def pictures(run: Finished, step: int) -> list[bytes]:
    paths = sorted((run.folder / "samples" / f"step-{step:08d}").glob("*.png"))
    return [Image.open(path).tobytes() for path in paths]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_previews_and_validation_trains_the_same(bench: Workbench, kind: str) -> None:
    held_out = {"concepts": [{"folder": "pictures"}, {"folder": "held", "role": "validation"}]}
    quiet = bench.run(KINDS[kind], "quiet")
    make_pictures(bench.folder / "held", 2, first=20)
    watched = bench.run({**KINDS[kind], "preview": PREVIEW, "data": held_out, "validation": {"every": "2 steps"}}, "w")
    assert watched.losses == quiet.losses
    assert same(watched.weights(6), quiet.weights(6))
    if kind == "ema":
        assert same(watched.saved(6, "averages"), quiet.saved(6, "averages"))
    shown = [event.step for event in watched.events if event.type == "preview"]
    assert shown == [0, 2, 4, 6]
    assert [event.step for event in watched.events if event.type == "validation"] == shown
    assert all(len(pictures(watched, step)) == 2 for step in shown)
    assert pictures(watched, 0) != pictures(watched, 6)
    assert len(set(pictures(watched, 6))) == 2


def test_painting_does_not_touch_the_global_generator(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline may draw from it; whatever it does is undone. The noise itself is keyed, so pictures repeat."""
    states = []
    real, inner = Painter.paint, Painter._latents

    def latents(self: Painter, *arguments: Any) -> Any:
        torch.rand(7)
        return inner(self, *arguments)

    def paint(self: Painter, *arguments: Any) -> Any:
        torch.manual_seed(len(states))
        before = torch.get_rng_state()
        painted = real(self, *arguments)
        states.append(torch.equal(before, torch.get_rng_state()))
        return painted

    monkeypatch.setattr(Painter, "paint", paint)
    monkeypatch.setattr(Painter, "_latents", latents)
    settings = {"run": {"length": "1 steps"}, "preview": {**PREVIEW, "prompts": ["a dog"]}}
    first, second = bench.run(settings, "first"), bench.run(settings, "second")
    assert states == [True] * 4
    assert pictures(first, 0) == pictures(second, 0)


def test_a_preview_that_runs_out_of_memory_is_left_out(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = bench.run(out="quiet")

    def paint(self: Painter, *arguments: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Painter, "paint", paint)
    run = bench.run({"preview": PREVIEW}, "watched")
    assert run.code == EXIT_DONE
    assert len(run.warnings) == 4
    assert all("left out" in warning for warning in run.warnings)
    assert same(run.weights(6), quiet.weights(6))


def test_a_preview_that_fits_only_singly_is_painted_singly(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"run": {"length": "1 steps"}, "preview": {**PREVIEW, "at_start": False}}
    together = bench.run(settings, "together")
    real = Painter._latents

    def latents(self: Painter, pipeline: Any, settings: Any, indices: range) -> Any:
        if len(indices) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return real(self, pipeline, settings, indices)

    monkeypatch.setattr(Painter, "_latents", latents)
    singly = bench.run(settings, "singly")
    assert not singly.warnings
    for one, other in zip(pictures(singly, 1), pictures(together, 1), strict=True):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1


def test_another_error_in_a_preview_is_not_hidden(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def paint(self: Painter, *arguments: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Painter, "paint", paint)
    with pytest.raises(RuntimeError, match="a bug"):
        bench.run({"preview": PREVIEW})
    assert Finished(bench.folder / "runs" / "run", 1).events[-1].state == "failed"
