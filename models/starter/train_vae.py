"""Trains the starter model's autoencoder on a folder of pictures.

``python -m models.starter.train_vae --pictures DIR --out DIR`` writes a diffusers ``AutoencoderKL``
folder; started again with the same ``--out`` it goes on from the last saved step. A second phase,
``--begin 3000 --steps 9000 --freeze-encoder --lr 5e-4``, improves the decoder alone: the latents stay
as they are, so a denoiser may already be training on them.

Loss: absolute error, absolute error of the picture's two finite differences (edges), and a small KL
term. Pixels ``[B, 3, 128, 128]`` in [-1, 1]; latents ``[B, 8, 16, 16]``.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from diffusers import AutoencoderKL
from PIL import Image
from torch import Tensor

from models.starter.heap import keep_heap_pages

CONFIG: dict[str, object] = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (16, 32, 64, 96),
    "layers_per_block": 1,
    "latent_channels": 8,
    "norm_num_groups": 4,
    "sample_size": 128,
    "mid_block_add_attention": False,
    "force_upcast": False,
}
KL_WEIGHT = 1e-4
EDGE_WEIGHT = 1.0
EMA_DECAY = 0.998
INITIAL_LOGVAR = -6.0
REPORT = 250
"""Updates between two reports and saves."""
HELD_OUT = 97
"""Every 97th picture is left out of training and used to measure."""


@torch.no_grad()
def initialise(vae: AutoencoderKL) -> None:
    """Start from a low-pass code: three channels carry the mean colour from end to end.

    Residual branches begin at zero and biases at zero, so that the picture, not the biases, dominates
    the signal; the posterior begins narrow. With torch's own start the same loss takes far longer.
    """
    for name, module in vae.named_modules():
        if not isinstance(module, torch.nn.Conv2d):
            continue
        weight, side = module.weight, module.weight.shape[-1]
        module.bias.zero_()
        if name.endswith("conv1"):
            torch.nn.init.kaiming_normal_(weight)
        elif name.endswith("conv2"):
            weight.zero_()
        else:
            torch.nn.init.normal_(weight, std=1 / math.sqrt(weight[0].numel()))
            for channel in range(3):
                weight[channel] = 0
                taps = slice(0, 2) if module.stride[0] == 2 else slice(side // 2, side // 2 + 1)
                weight[channel, channel, taps, taps] = 0.25 if module.stride[0] == 2 else 1.0
    channels = vae.config.latent_channels
    vae.quant_conv.weight[channels:] *= 0.05
    vae.quant_conv.bias[channels:] = INITIAL_LOGVAR


def load_pictures(folder: Path) -> Tensor:
    """Return all PNGs of a folder as ``[N, 3, Y, X]`` uint8."""
    paths = sorted(folder.glob("*.png"))
    arrays = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()


def make_batch(pictures: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Draw a batch: mirrored, rolled by up to 8 pixels, colour channels swapped in a fifth of it."""
    numbers = torch.randint(len(pictures), (size,), generator=generator)
    batch: list[Tensor] = []
    for picture in pictures[numbers]:
        dy, dx, flip, swap = torch.randint(0, 1 << 20, (4,), generator=generator).tolist()
        picture = picture.roll((dy % 17 - 8, dx % 17 - 8), (1, 2))
        picture = picture.flip(2) if flip % 2 else picture
        picture = picture[torch.randperm(3, generator=generator)] if swap % 5 == 0 else picture
        batch.append(picture)
    return torch.stack(batch).float() / 127.5 - 1


def edge_distance(a: Tensor, b: Tensor) -> Tensor:
    """Mean absolute error of the horizontal and vertical differences of ``[B, 3, Y, X]`` pictures."""
    error = a - b
    return (error.diff(dim=3)).abs().mean() + (error.diff(dim=2)).abs().mean()


def compute_loss(vae: AutoencoderKL, pixels: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """Return (loss, absolute error); ``eps`` is the standard normal draw of the posterior."""
    posterior = vae.encode(pixels).latent_dist
    decoded = vae.decode(posterior.mean + posterior.std * eps.to(posterior.mean.dtype)).sample.float()
    absolute = (decoded - pixels).abs().mean()
    mean, logvar = posterior.mean.float(), posterior.logvar.float()
    kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()
    return absolute + EDGE_WEIGHT * edge_distance(decoded, pixels) + KL_WEIGHT * kl, absolute.detach()


def rate_at(step: int, steps: int, peak: float, warmup: int = 150) -> float:
    """Linear warm-up, then a cosine down to zero."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@torch.no_grad()
def encode_means(vae: AutoencoderKL, pictures: Tensor) -> Tensor:
    """Return the posterior means ``[N, C, 16, 16]`` of ``[N, 3, 128, 128]`` uint8 pictures."""
    return torch.cat([vae.encode(c.float() / 127.5 - 1).latent_dist.mean for c in pictures.split(16)])


@torch.no_grad()
def measure_psnr(vae: AutoencoderKL, pictures: Tensor) -> float:
    """Return the mean PSNR in dB of uint8 pictures decoded from their mean latents."""
    psnrs: list[Tensor] = []
    for chunk in pictures.split(16):
        decoded = vae.decode(encode_means(vae, chunk)).sample.clamp(-1, 1)
        error = (decoded - (chunk.float() / 127.5 - 1)).square().flatten(1).mean(1)
        psnrs.append(10 * torch.log10(4 / error))
    return torch.cat(psnrs).mean().item()


@torch.no_grad()
def standardise(vae: AutoencoderKL, latents: Tensor) -> None:
    """Give every latent channel mean 0 and deviation 1 by folding both into the 1x1 convolutions.

    ``latents`` ``[N, C, 16, 16]`` are the means by which to measure; reconstructions do not change.
    """
    mean, deviation = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
    inner, outer, count = vae.quant_conv, vae.post_quant_conv, len(mean)
    inner.weight[:count] /= deviation[:, None, None, None]
    inner.bias[:count] = (inner.bias[:count] - mean) / deviation
    inner.bias[count:] -= 2 * deviation.log()
    outer.bias += outer.weight[:, :, 0, 0] @ mean
    outer.weight *= deviation[None, :, None, None]


def save_state(path: Path, state: Mapping[str, object]) -> None:
    """Write a torch file and put it in place in one rename."""
    partial = path.with_suffix(".partial")
    torch.save(dict(state), partial)
    os.replace(partial, path)


def export(average: Mapping[str, Tensor], pictures: Tensor, out: Path) -> float:
    """Write the averaged weights, standardised, in half precision; return their PSNR in dB."""
    averaged = AutoencoderKL(**CONFIG).eval()
    averaged.load_state_dict(average)
    standardise(averaged, encode_means(averaged, pictures))
    averaged.register_to_config(scaling_factor=1.0)
    averaged.half().save_pretrained(out)
    return measure_psnr(averaged.float(), pictures)


class Trainer:
    """The training state: weights, their average, the optimizer and the step."""

    def __init__(self, pictures: Tensor, out: Path, seed: int) -> None:
        """Build the network from the seed, or load what ``out`` holds."""
        torch.manual_seed(seed)
        self.held, keep = pictures[::HELD_OUT], torch.ones(len(pictures), dtype=torch.bool)
        keep[::HELD_OUT] = False
        self.pictures, self.out, self.seed = pictures[keep], out, seed
        self.vae = AutoencoderKL(**CONFIG)
        initialise(self.vae)
        self.optimizer = torch.optim.AdamW(
            self.vae.parameters(), betas=(0.9, 0.99), weight_decay=1e-3, fused=True
        )
        self.average = {name: value.clone() for name, value in self.vae.state_dict().items()}
        self.step = 0
        self.state_path = out / "training-state.pt"
        if self.state_path.is_file():
            state = torch.load(self.state_path, weights_only=True)
            self.vae.load_state_dict(state["vae"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.average, self.step = state["average"], state["step"]

    def save(self) -> None:
        """Write the resumable state."""
        state = {"vae": self.vae.state_dict(), "optimizer": self.optimizer.state_dict()}
        save_state(self.state_path, {**state, "average": self.average, "step": self.step})

    def freeze_encoder(self) -> None:
        """Go on from the averaged weights and leave the encoder, and so the latents, as they are."""
        self.vae.load_state_dict(self.average)
        for part in (self.vae.encoder, self.vae.quant_conv):
            part.requires_grad_(False)

    def advance(self, rate: float, batch: int) -> tuple[float, float]:
        """Make one update at a learning rate; return (loss, absolute error)."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.step)
        pixels = make_batch(self.pictures, batch, generator)
        eps = torch.randn(batch, int(CONFIG["latent_channels"]), 16, 16, generator=generator)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16):
            loss, absolute = compute_loss(self.vae, pixels, eps)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.vae.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        decay = min(EMA_DECAY, self.step / (self.step + 10))
        for name, value in self.vae.state_dict().items():
            self.average[name].lerp_(value, 1 - decay)
        return loss.item(), absolute.item()


def main(
    pictures: Annotated[Path, typer.Option(help="folder of PNG pictures")],
    out: Annotated[Path, typer.Option(help="folder of the autoencoder")],
    steps: Annotated[int, typer.Option(help="number of updates")] = 3000,
    batch: Annotated[int, typer.Option(help="pictures per update")] = 8,
    lr: Annotated[float, typer.Option(help="peak learning rate")] = 1e-3,
    begin: Annotated[int, typer.Option(help="step at which this phase's schedule begins")] = 0,
    freeze_encoder: Annotated[bool, typer.Option(help="train the decoder alone")] = False,
    seed: Annotated[int, typer.Option(help="seed of weights, order and augmentation")] = 1,
) -> None:
    """Train the autoencoder and write it as a diffusers folder."""
    keep_heap_pages()
    out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(load_pictures(pictures), out, seed)
    if freeze_encoder:
        trainer.freeze_encoder()
    began, losses, errors = time.monotonic(), [], []
    while trainer.step < steps:
        loss, absolute = trainer.advance(rate_at(trainer.step - begin, steps - begin, lr), batch)
        losses.append(loss)
        errors.append(absolute)
        if trainer.step % REPORT == 0 or trainer.step == steps:
            trainer.save()
            psnr = export(trainer.average, trainer.held, out)
            means = (sum(values) / len(values) for values in (losses, errors))
            rate = len(losses) * batch / (time.monotonic() - began)
            typer.echo(
                f"step {trainer.step} loss {next(means):.4f} l1 {next(means):.4f} "
                f"psnr {psnr:.2f} dB, {rate:.1f} pictures/s"
            )
            began, losses, errors = time.monotonic(), [], []
    typer.echo(f"psnr {export(trainer.average, trainer.held, out):.2f} dB, written to {out}")


if __name__ == "__main__":
    typer.run(main)
