"""Painting outside of a run: with a base model, with what a run has trained, or with a LoRA file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.core.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

    from trainers.adapters._protocol import Trainable
    from trainers.engine.preview import Painter
    from trainers.presets.load import Loaded


@dataclass(frozen=True)
class SampleSettings:
    """What to paint. None means: as the preset's previews, or as the family is used to."""

    prompts: tuple[str, ...]
    negative: str | None = None
    size: tuple[int, int] | None = None
    steps: int | None = None
    guidance: float | None = None
    seed: int = 1
    strength: float = 1.0


def open_base(loaded: Loaded) -> tuple[Painter, tuple[int, int]]:
    """The untrained model of a preset, ready to paint its class prompts: (painter, (height, width))."""
    from trainers.engine.build import family_of, make_objective, resolve_weights
    from trainers.memory.device import choose
    from trainers.memory.heap import keep_pages
    from trainers.presets.preset import resolve

    keep_pages()
    family = family_of(loaded.preset.model.family)
    preset = resolve(loaded.preset, family.facts)
    device = choose(preset.compute.device, preset.compute.precision)
    _, weights = make_objective(preset, resolve_weights(family, preset, loaded.path.parent))
    painter = _painter(family, weights, device)
    text = family.load("text", weights, dtype=painter.vae.dtype, device=device.device)  # type: ignore[arg-type]
    prompts = {concept.prompt for concept in preset.data.concepts if concept.prompt}
    painter.encode(text, sorted({*prompts, preset.preview.negative}))
    return painter, paint_size(preset.preview.size, weights.facts)


def paint_size(size: Any, facts: Any) -> tuple[int, int]:
    """(width, height) or None -> (height, width) in multiples that the family can paint."""
    width, height = size or (isqrt(facts.native_area),) * 2
    step = facts.size_multiple
    return max(step, height // step * step), max(step, width // step * step)


def _painter(family: Any, weights: Any, device: Any) -> Painter:
    """Load denoiser and VAE for painting."""
    import torch

    from trainers.engine.preview import Painter

    denoiser = family.load("denoiser", weights, dtype=device.dtype, device=device.device)
    vae = family.load("vae", weights, dtype=torch.float32, device=device.device)
    return Painter(family, weights, denoiser.requires_grad_(False), vae.requires_grad_(False), device)


def sample(
    source: Path | str,
    settings: SampleSettings,
    *,
    base: str | None = None,
    family: str | None = None,
    device: str = "auto",
) -> list[Image.Image]:
    """Paint prompts with a run directory (its newest checkpoint), with a model, or with a LoRA file on a `base`.

    `source` is a run directory; a model folder, file or "builtin:NAME"; or a LoRA file in any layout that the family
    reads. `family` may be left out where the file says it, as those that we wrote do.
    """
    from trainers.engine.merging import family_from, header_of

    folder = Path(str(source)).expanduser()
    if (folder / "preset.toml").exists():
        return _sample_run(folder, settings, device)
    header, is_lora = header_of(folder)
    if is_lora and base is None:
        trained_on = header.get("trainers.base") or "the one it was trained on"
        raise UserError(
            "this is a LoRA: it needs its base model", where=str(source), remedy=f"name it with --base: {trained_on}"
        )
    if base is not None and not is_lora:
        raise UserError("this is no LoRA file", where=str(source), remedy="leave --base out for a whole model")
    family = family or family_from(header, str(source), base or "")
    if family is None:
        raise UserError(
            "which family is this model of?", where=str(source), remedy="add --family, such as --family sd15"
        )
    return _sample_model(base or str(source), settings, family, device, lora=folder if is_lora else None)


def _sample_run(folder: Path, settings: SampleSettings, device: str) -> list[Image.Image]:
    """Paint with the newest checkpoint of a run, averaged weights where the run keeps them."""
    from trainers.engine.preview import PreviewSettings
    from trainers.engine.trained import load_trained

    trained = load_trained(folder, device=device)
    preview = trained.loaded.preset.preview
    negative = preview.negative if settings.negative is None else settings.negative
    wanted = PreviewSettings(
        prompts=settings.prompts,
        negative=negative,
        size=settings.size or paint_size(preview.size, trained.painter.weights.facts),
        steps=settings.steps or preview.steps,
        guidance=preview.guidance if settings.guidance is None else settings.guidance,
        seed=settings.seed,
        sampler=preview.sampler,
    )
    with ExitStack() as stack:
        stack.enter_context(trained.state.evaluation_weights())
        if settings.strength == 0:
            stack.enter_context(trained.state.adapter.disabled())
        elif settings.strength != 1:
            scale_strength(trained.state.trainables, settings.strength)
        trained.painter.encode(trained.text, sorted({*settings.prompts, negative}))
        return trained.painter.paint(wanted)


def scale_strength(trainables: Sequence[Trainable], strength: float) -> None:
    """Scale what a LoRA adds; the weights are changed for good, so this is for a model that only paints."""
    ups = [item for item in trainables if item.name.endswith(".lora_B.weight")]
    if not ups or any(item.name.endswith(".dora_scale") for item in trainables):
        raise UserError(
            "only a plain LoRA has a strength other than 0 and 1", where="--strength", remedy="leave it at 1"
        )
    for item in ups:
        item.parameter.data.mul_(strength)


def _sample_model(
    source: str, settings: SampleSettings, name: str, device_name: str, *, lora: Path | None
) -> list[Image.Image]:
    """Paint with a model as it is, or with the weights of a LoRA file added to it."""
    import torch

    from trainers.checkpoint.export import read_safetensors
    from trainers.engine.build import family_of, local_or_hub
    from trainers.engine.merging import as_trained, merge_lora
    from trainers.engine.preview import PreviewSettings
    from trainers.memory.device import choose

    family = family_of(name)
    device = choose(device_name, "auto")
    tensors, header = read_safetensors(lora) if lora else ({}, {})
    state = family.from_published(tensors, header) if lora else {}
    weights = as_trained(family.resolve(local_or_hub(source, Path.cwd())), header)
    painter = _painter(family, weights, device)
    negative = settings.negative or ""
    text = family.load("text", weights, dtype=torch.float32, device=device.device)
    encoders: Any = text.encoders
    merge_lora({"denoiser": painter.denoiser, **dict(encoders.items())}, state, settings.strength, str(lora))
    painter.encode(text, sorted({*settings.prompts, negative}))
    size = settings.size or paint_size(None, weights.facts)
    return painter.paint(
        PreviewSettings(
            settings.prompts,
            negative,
            size,
            settings.steps or 25,
            5.0 if settings.guidance is None else settings.guidance,
            settings.seed,
        )
    )
