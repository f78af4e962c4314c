"""C24: four micro-batches of one are one micro-batch of four; on both networks, and with masks of unequal areas."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.pictures import draw, make_pictures
from tests.tiny import Workbench, apart, batches_of

AREAS = (64, 48, 16, 8)  # visible columns of 64


def make_cutouts(folder: Path) -> None:
    """Pictures that are opaque on the left only, each by another share."""
    folder.mkdir()
    for number, columns in enumerate(AREAS):
        picture, caption = draw(number)
        alpha = Image.new("L", (64, 64), 0)
        alpha.paste(255, (0, 0, columns, 64))
        picture.putalpha(alpha)
        picture.save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(caption, "utf-8")


@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masks"])
def test_four_times_one_is_one_times_four(bench: Workbench, masks: bool) -> None:
    pictures = bench.folder / "pictures"
    if masks:
        make_cutouts(pictures)
    else:
        make_pictures(pictures, 4)
    concept = {"folder": "pictures", "mask": "alpha" if masks else "none"}

    def settings(micro: int) -> dict:
        return {
            "run": {"length": "4 steps"},
            "train": {"parts": ["denoiser", "text_encoder"], "dropout": 0.2},
            "data": {"batch": 4, "concepts": [concept], "caption_dropout": 0.3},
            "compute": {"micro_batch": micro},
            "optimizer": {"kind": "custom", "path": "torch.optim.SGD", "lr": 1.0},
        }

    with batches_of() as small:
        ones = bench.run(settings(1), "ones")
    with batches_of() as large:
        four = bench.run(settings(4), "four")
    assert [len(step.micro) for step in small] == [4] * 4
    assert [len(step.micro) for step in large] == [1] * 4
    first, last = ones.weights(4), four.weights(4)
    assert apart(first, last) < 1e-6
    for part in ("denoiser.", "text_encoder."):
        moved = [float(weight.abs().max()) for name, weight in first.items() if part in name and "lora_B" in name]
        assert max(moved) > 1e-4, part
    assert ones.losses == pytest.approx(four.losses, rel=1e-5)
    if masks:
        areas = sorted(float(mask.mean()) for mask in large[0].micro[0].mask)
        assert areas == pytest.approx(sorted(columns / 64 for columns in AREAS), abs=0.01)
        column = large[0].micro[0].mask[:, 0, 0].mean(1)  # [B, W]: opaque on the left
        assert torch.equal(column.sort(1, descending=True).values, column)
    else:
        assert large[0].micro[0].mask is None
