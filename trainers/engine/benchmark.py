"""A step of this suite against the plainest loop that does the same work: same tensors, one process, in turn.

Both train a LoRA of rank 16 on the attention of a U-Net of Stable Diffusion's block types (13 M weights) with AdamW.
The plain loop is PEFT, mean squared error in fp32, backward and `torch.optim.AdamW` as they come, under the C heap's
usual settings; ours is the engine's own `Stepper` with what the engine sets on such a machine.
"""

from __future__ import annotations

import ctypes
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainers.core.batch import Draw, Geometry, MicroBatch
from trainers.core.position import Position
from trainers.engine.build import family_of
from trainers.engine.state import TrainState
from trainers.engine.step import Stepper
from trainers.memory.device import Device, choose
from trainers.memory.heap import keep_pages

if TYPE_CHECKING:
    from trainers.data.loader import StepBatch

WIDTHS = (64, 128, 128, 128)
RANK, RATE, TOKENS, WIDTH = 16, 1e-4, 77, 256
ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
# mallopt's numbers, and what glibc arrives at by itself after it has seen big blocks: the state of an ordinary process.
_USUAL_HEAP = ((-4, 65536), (-3, 32 << 20), (-1, 64 << 20), (-2, 128 << 10))

Loop = Callable[[], None]


@dataclass(frozen=True)
class StepBench:
    """Medians over rounds. `ratio` is ours / plain of the same round; `over` the milliseconds that ours takes more."""

    pixels: int
    batch: int
    precision: str
    threads: int
    rounds: int
    steps: int
    plain_seconds: float
    our_seconds: float
    ratio: float
    ratio_least: float
    ratio_most: float
    machine: str
    torch: str

    @property
    def over_ms(self) -> float:
        """Milliseconds a step that ours takes more (or, below zero, less) than the plain loop."""
        return (self.our_seconds - self.plain_seconds) * 1000

    def to_json(self) -> dict[str, Any]:
        """The measurement as plain values."""
        return {**asdict(self), "over_ms": self.over_ms}


def bench_step(
    *, pixels: int = 256, batch: int = 2, precision: str = "fp32", rounds: int = 3, steps: int = 6, threads: int = 1
) -> StepBench:
    """Measure both loops on the CPU in turn, `rounds` times `steps` steps each, after a step of warming up."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        device = choose("cpu", precision)
        data = _batch(pixels // 8, batch)
        plain, ours = _plain_loop(_network(), data), _our_loop(_network(), data, device)
        # One thread's own CPU time does not count what other programs do meanwhile.
        clock = time.process_time if threads == 1 else time.perf_counter
        pairs = [
            (_seconds(plain, usual_heap, steps, clock), _seconds(ours, keep_pages, steps, clock)) for _ in range(rounds)
        ]
    finally:
        torch.set_num_threads(before)
    ratios = [mine / theirs for theirs, mine in pairs]
    return StepBench(
        pixels=pixels,
        batch=batch,
        precision=device.precision,
        threads=threads,
        rounds=rounds,
        steps=steps,
        plain_seconds=statistics.median(theirs for theirs, _ in pairs),
        our_seconds=statistics.median(mine for _, mine in pairs),
        ratio=statistics.median(ratios),
        ratio_least=min(ratios),
        ratio_most=max(ratios),
        machine=platform.processor() or platform.machine(),
        torch=torch.__version__,
    )


def usual_heap() -> bool:
    """Undo `keep_pages`: give glibc the settings that it finds for itself in a process that says nothing."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(option, value) == 1 for option, value in _USUAL_HEAP)


def _seconds(loop: Loop, heap: Callable[[], bool], steps: int, clock: Callable[[], float]) -> float:
    """Seconds a step, the first one left out."""
    heap()
    loop()
    start = clock()
    for _ in range(steps):
        loop()
    return (clock() - start) / steps


def _network() -> nn.Module:
    """A U-Net with random weights, the same at each call."""
    from diffusers import UNet2DConditionModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: nn.Module = UNet2DConditionModel(
            block_out_channels=WIDTHS, cross_attention_dim=WIDTH, attention_head_dim=8
        )
    return network.requires_grad_(False).train()


def _batch(grid: int, size: int) -> StepBatch:
    """One step of drawn numbers in place of pictures: latents [B, 4, 1, H, W], context [B, S, D]."""
    from trainers.data.loader import StepBatch

    source = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source)

    edge = (grid * 8, grid * 8)
    micro = MicroBatch(
        ids=tuple(str(number) for number in range(size)),
        x0=normal(size, 4, 1, grid, grid),
        condition={"context": normal(size, TOKENS, WIDTH)},
        captions=("",) * size,
        geometry=(Geometry(edge, (0, 0), edge),) * size,
        dropped=torch.zeros(size, dtype=torch.bool),
        mask=None,
        weight=torch.ones(size),
        draw=Draw(normal(size, 4, 1, grid, grid), torch.rand(size, generator=source), {}),
    )
    return StepBatch(0, (micro,), float(size), size)


def _plain_loop(network: nn.Module, data: StepBatch) -> Loop:
    """Forward, backward and AdamW, and nothing else."""
    from peft import LoraConfig, inject_adapter_in_model

    model = inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=ATTENTION), network)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE)
    micro = data.micro[0]
    noise, times = micro.draw.eps[:, :, 0], (micro.draw.u * 1000).long()
    context = micro.condition["context"] if micro.condition else None
    noisy = 0.7 * micro.x0[:, :, 0] + 0.7 * noise

    def step() -> None:
        predicted = model(noisy, times, encoder_hidden_states=context, return_dict=False)[0]
        optimizer.zero_grad()
        nn.functional.mse_loss(predicted, noise).backward()
        optimizer.step()

    return step


def _our_loop(network: nn.Module, data: StepBatch, device: Device) -> Loop:
    """The engine's own update, built as `engine.build` does for a LoRA."""
    from trainers.adapters import lora
    from trainers.objectives import denoising
    from trainers.optimizers import adamw
    from trainers.optimizers._facade import Bundle
    from trainers.optimizers._groups import make_groups

    family = family_of("sd15")
    network = network.to(device.dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    adapter = lora.build(lora.Config(rank=RANK, targets="attention"), seed=1)
    trainables = adapter.attach({"denoiser": network}, family.facts)
    settings = adamw.Config(lr=RATE)
    bundle = Bundle(adamw.build(settings, make_groups(trainables, lr=RATE, weight_decay=settings.weight_decay)))
    stepper = Stepper(
        family=family,
        denoiser=network,
        text=None,
        objective=denoising.build(denoising.Config(), family.facts),
        state=TrainState(adapter, trainables, bundle, None, None, Position()),
        device=device,
        rate=_constant,
        seed=1,
        clip_norm=1.0,
        set_draw=None,
    )

    def step() -> None:
        stepper.update(data)

    return step


def _constant(_: int) -> float:
    return 1.0


def render_bench(measured: Sequence[StepBench]) -> str:
    """Show measurements as a table in Markdown, ready for a document."""
    lines = [
        "| pixels | batch | precision | plain loop s/step | this suite s/step | ratio (least .. most) | difference |",
        "| ---: | ---: | --- | ---: | ---: | --- | ---: |",
    ]
    lines += [
        f"| {one.pixels} | {one.batch} | {one.precision} | {one.plain_seconds:.3f} | {one.our_seconds:.3f} "
        f"| {one.ratio:.2f} ({one.ratio_least:.2f} .. {one.ratio_most:.2f}) | {one.over_ms:+.1f} ms |"
        for one in measured
    ]
    first = measured[0]
    return "\n".join([*lines, "", f"{first.threads} thread(s), {first.machine}, torch {first.torch}"])
