"""From a preset to a session: the one place that knows all parts. Everything below takes plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from trainers.adapters._protocol import Adapter, Trainable
from trainers.checkpoint.export import read_safetensors
from trainers.core import discover
from trainers.core.errors import UserError
from trainers.core.facts import PredictionKind
from trainers.core.family import Family, Weights
from trainers.core.position import Position
from trainers.diffusion.rates import factor
from trainers.engine.averages import Averages
from trainers.engine.quiet import hush_libraries
from trainers.engine.state import TrainState
from trainers.engine.step import Stepper
from trainers.memory.attention import use_attention
from trainers.memory.checkpointing import checkpoint_activations, wants_checkpointing
from trainers.memory.collector import collector_paused
from trainers.memory.device import DTYPES, Device
from trainers.memory.heap import big_blocks_apart
from trainers.objectives._protocol import Objective
from trainers.optimizers._protocol import make_bundle

if TYPE_CHECKING:
    from trainers.engine.planning import Plan
    from trainers.presets.preset import Preset


def family_of(name: str) -> Family:
    """The methods of a family; loads torch and the model libraries."""
    hush_libraries()
    family: Family = discover.load("models", name, "family").Family()
    return family


def plugin(package: str, config: Any) -> Any:
    """The module that a config's `kind` names."""
    return discover.load(package, config.kind)


def resolve_weights(family: Family, preset: Preset, base: Any) -> Weights:
    """Find the weights of a preset, with what the preset says about them put into their facts."""
    source = preset.model.weights or family.facts.default_weights
    if not source:
        raise UserError(
            f"{family.facts.title} has no usual weights",
            where="model.weights",
            remedy="name a folder, a file or a hub id",
        )
    weights = family.resolve(
        local_or_hub(source, base),
        vae=local_or_hub(preset.model.vae, base) if preset.model.vae else None,
        offline=preset.model.offline,
    )
    if preset.model.prediction:
        weights = replace(weights, facts=replace(weights.facts, prediction=preset.model.prediction))
    return weights


def local_or_hub(source: str, base: Any) -> str:
    """A path relative to the preset becomes absolute where it exists; hub ids and "builtin:" stay."""
    if source.startswith("builtin:"):
        return source
    path = (base / source).expanduser()
    return str(path.resolve()) if path.exists() else source


def make_objective(preset: Preset, weights: Weights) -> tuple[Objective, Weights]:
    """The objective, and the weights with facts that sample as the objective trains."""
    config = preset.objective
    objective: Objective = plugin("trainers.objectives", config).build(config, weights.facts)
    facts = replace(
        weights.facts,
        prediction=cast(PredictionKind, objective.prediction),
        path=objective.path.kind,
        schedule=objective.path.schedule or weights.facts.schedule,
    )
    return objective, replace(weights, facts=facts)


@dataclass(frozen=True)
class Networks:
    """The networks of the training stage."""

    denoiser: nn.Module
    text: nn.Module | None

    def trainable(self) -> dict[str, nn.Module]:
        """Part name -> network, of everything that could be trained."""
        parts = {"denoiser": self.denoiser}
        if self.text is not None:
            parts |= dict(self.text.encoders.items())  # type: ignore[union-attr, operator]
        return parts


def load_networks(family: Family, weights: Weights, preset: Preset, device: Device, text: nn.Module | None) -> Networks:
    """Load what trains: frozen weights in the precision of the forward pass, trained ones in float32."""
    train: Any = preset.train
    full = train.kind == "full"
    dtype = DTYPES[preset.compute.weights_precision] if preset.compute.weights_precision != "auto" else device.dtype
    trained = set(train.parts) if full else set()
    with collector_paused(), big_blocks_apart():
        denoiser = family.load(
            "denoiser", weights, dtype=torch.float32 if "denoiser" in trained else dtype, device=device.device
        )
        if preset.compute.channels_last is True or (
            preset.compute.channels_last == "auto" and device.kind in ("cuda", "cpu")
        ):
            denoiser = denoiser.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    use_attention(denoiser, preset.compute.attention)
    networks = Networks(denoiser, text)
    recompute = wants_checkpointing(
        preset.compute.gradient_checkpointing,
        device_kind=device.kind,
        device_bytes=device.memory()[1],
        parameters=sum(weight.numel() for weight in denoiser.parameters()),
    )
    for module in networks.trainable().values():
        module.train()
        if recompute:
            checkpoint_activations(module)
    return networks


def make_adapter(
    preset: Preset, networks: Networks, weights: Weights, family: Family, base: Path
) -> tuple[Adapter, list[Trainable]]:
    """Freeze everything, then make what the preset trains trainable."""
    adapter: Adapter = plugin("trainers.adapters", preset.train).build(preset.train, seed=preset.run.seed)
    trainables = adapter.attach(networks.trainable(), weights.facts)
    if not trainables:
        raise UserError("nothing would be trained", where="train", remedy="name parts or targets that the model has")
    if adapter.init_from is not None:
        start_from(adapter, family, base / Path(adapter.init_from).expanduser())
    return adapter, trainables


def start_from(adapter: Adapter, family: Family, file: Path) -> None:
    """Start from weights that were trained before, in any published layout that the family reads."""
    if not file.is_file():
        raise UserError("there is no such file", where=f"train.init_from = {file}", remedy="name a .safetensors file")
    tensors, header = read_safetensors(file)
    adapter.load(family.from_published(tensors, header))


def make_state(preset: Preset, adapter: Adapter, trainables: Sequence[Trainable], device: Device) -> TrainState:
    """Optimizer, averages and scaler around the trainables, at position 0."""
    config: Any = preset.optimizer
    optimizer = make_bundle(config, trainables)
    averages = Averages(trainables, preset.ema.decay, warmup=preset.ema.warmup) if preset.ema.enabled else None
    scaler = torch.amp.GradScaler(device.kind) if device.needs_scaler else None
    return TrainState(adapter, trainables, optimizer, averages, scaler, Position())


def make_stepper(
    preset: Preset,
    plan: Plan,
    family: Family,
    networks: Networks,
    objective: Objective,
    state: TrainState,
    device: Device,
) -> Stepper:
    """Everything of one update."""
    schedule = preset.schedule
    rate = partial(
        factor, total=plan.total_steps, warmup=plan.warmup_steps, kind=schedule.kind,
        cycles=schedule.cycles, power=schedule.power, floor=schedule.floor,
    )  # fmt: skip
    return Stepper(
        family=family, denoiser=networks.denoiser, text=networks.text, objective=objective, state=state,
        device=device, rate=rate, seed=preset.run.seed, clip_norm=preset.step.clip_norm or None,
        set_draw=state.adapter.set_draw if getattr(preset.train, "dropout", 0.0) > 0 else None,
    )  # fmt: skip
