"""C23, a short last group: it is a step of its own, averaged over its real size. Against a loop written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from torch import Tensor

from tests.pictures import make_pictures
from tests.tiny import Workbench, batches_of, tiny_model
from trainers.data.loader import StepBatch

RATE = 0.05


def by_hand(bench: Workbench, steps: Sequence[StepBatch]) -> dict[str, Tensor]:
    """Plain SGD on diffusers' own classes: each sample by itself, the step's gradient is their mean."""
    folder = tiny_model(bench.models)
    unet = UNet2DConditionModel.from_pretrained(folder / "unet")
    noise = DDPMScheduler.from_pretrained(folder / "scheduler")
    for step in steps:
        samples = [(micro, index) for micro in step.micro for index in range(len(micro.ids))]
        gradients = {name: torch.zeros_like(weight) for name, weight in unet.named_parameters()}
        for micro, index in samples:
            x0, eps = micro.x0[index : index + 1, :, 0], micro.draw.eps[index : index + 1, :, 0]
            time = (micro.draw.u[index : index + 1] * 1000).floor().long()
            context = micro.condition["context"][index : index + 1]
            pred = unet(noise.add_noise(x0, eps, time), time, context).sample
            unet.zero_grad()
            torch.nn.functional.mse_loss(pred, eps).backward()
            for name, weight in unet.named_parameters():
                gradients[name] += weight.grad / len(samples)
        with torch.no_grad():
            for name, weight in unet.named_parameters():
                weight -= RATE * gradients[name]
    return {f"denoiser.{name}": weight.detach() for name, weight in unet.named_parameters()}


@pytest.mark.parametrize(("pictures", "counts"), [(7, [4, 3, 4, 3]), (3, [3, 3])])
def test_short_groups_equal_a_loop_written_by_hand(bench: Workbench, pictures: int, counts: list[int]) -> None:
    make_pictures(bench.folder / "pictures", pictures)
    with batches_of() as steps:
        run = bench.run(
            {
                "run": {"length": "2 epochs"},
                "train": {"kind": "full"},
                "data": {"batch": 4},
                "compute": {"micro_batch": 1},
                "optimizer": {"kind": "custom", "path": "torch.optim.SGD", "lr": RATE, "weight_decay": 0.0},
                "step": {"clip_norm": 0},
                "export": {"layouts": ["single_file"]},
            }
        )
    assert [len(step.micro) for step in steps] == counts
    assert [event.samples for event in run.metrics] == [sum(counts[: n + 1]) for n in range(len(counts))]
    ids = [name for step in steps for micro in step.micro for name in micro.ids]
    assert all(ids.count(name) == 2 for name in ids)
    assert len(set(ids)) == pictures
    weights, expected = run.weights(len(counts)), by_hand(bench, steps)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-6, msg=name)
