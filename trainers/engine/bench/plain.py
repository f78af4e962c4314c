"""The plainest loops that do the same work: what every figure of ours is divided by.

Forward, mean squared error, backward, AdamW as torch gives it, a LoRA of a few lines, fp32, the C library's own heap
settings. `tuned` adds what torch offers to everyone (fused AdamW, channels_last) and the kept heap, so that what is
left of a difference is the fixed cost of our loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from trainers.engine.bench.gate import Gate
from trainers.engine.bench.spec import RANK, RATE, Case

_ADAPTED = ("to_q", "to_k", "to_v", "to_out.0")


class ThinLora(nn.Module):
    """base(x) + B(A(x))."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        return self.base(x) + self.up(self.down(x))


def train(case: Case, gate: Gate, *, tuned: bool) -> None:
    """Run the plain training loop, lap by lap."""
    from diffusers import DDPMScheduler, UNet2DConditionModel

    if tuned:
        from trainers.memory.heap import keep_pages

        keep_pages()
    network = UNet2DConditionModel.from_pretrained(case.weights / "unet").requires_grad_(False).train()
    if tuned:
        network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(_adapt(network), lr=RATE, fused=tuned or None)
    schedule = DDPMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    batches = _batches(case)

    def step() -> None:
        latents, context = next(batches)
        noise = torch.randn_like(latents)
        times = torch.randint(0, 1000, (len(latents),))
        noisy = schedule.add_noise(latents, noise, times)
        predicted = network(noisy, times, encoder_hidden_states=context, return_dict=False)[0]
        loss = nn.functional.mse_loss(predicted, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    for number in range(case.warmup):
        step()
        if number == 0:
            gate.first_step()
    for _ in range(case.rounds):
        gate.wait()
        for _ in range(case.steps):
            step()
        gate.lap(case.steps)
    gate.end()


def encode(case: Case, gate: Gate) -> None:
    """Open, crop, resize, encode: every picture once a lap, and nothing else."""
    from diffusers import AutoencoderKL

    vae = AutoencoderKL.from_pretrained(case.weights / "vae").requires_grad_(False).eval()
    paths = sorted(case.data.iterdir())
    _encode_one(vae, paths[0], case.pixels)
    for _ in range(case.rounds):
        gate.wait()
        for path in paths:
            _encode_one(vae, path, case.pixels)
        gate.lap(len(paths))
    gate.end()


def _encode_one(vae: Any, path: Path, edge: int) -> Tensor:
    picture = Image.open(path).convert("RGB")
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.resize((edge, edge), Image.Resampling.LANCZOS, (left, top, left + side, top + side))
    pixels = torch.from_numpy(np.asarray(square).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1.0
    with torch.no_grad():
        latents: Tensor = vae.encode(pixels).latent_dist.sample() * vae.config.scaling_factor
    return latents


def _adapt(network: nn.Module) -> list[nn.Parameter]:
    """Put a LoRA around every attention projection; returns what is trained."""
    chosen = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    trained: list[nn.Parameter] = []
    for name in chosen:
        parent, _, leaf = name.rpartition(".")
        if leaf in _ADAPTED or name.endswith("to_out.0"):
            layer = ThinLora(network.get_submodule(name))  # type: ignore[arg-type]
            setattr(network.get_submodule(parent), leaf, layer)
            trained += [*layer.down.parameters(), *layer.up.parameters()]
    return trained


def _batches(case: Case) -> Iterator[tuple[Tensor, Tensor]]:
    """Latents [B, 4, H, W] and context [B, S, D], in turn and for ever."""
    tensors = load_file(case.tensors)
    latents, context = tensors["x0"], tensors["context"]
    while True:
        for start in range(0, len(latents) - case.batch + 1, case.batch):
            yield latents[start : start + case.batch], context[start : start + case.batch]
