"""From trained weights, of a live run or of a checkpoint, to files that other programs load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainers.adapters._protocol import Adapter
from trainers.checkpoint.export import Exported, LoraCard, export_folder, export_lora, export_single_file
from trainers.core.errors import Problem, UserError, nearest
from trainers.core.facts import Facts
from trainers.core.family import Family, Weights
from trainers.core.position import Position

if TYPE_CHECKING:
    from trainers.engine.session import Session
    from trainers.presets.load import Loaded
    from trainers.presets.preset import Preset


@dataclass(frozen=True)
class Export:
    """Everything that finished files are made of; `parts` are those in memory, the others are loaded when needed."""

    loaded: Loaded
    family: Family
    weights: Weights
    adapter: Adapter
    parts: Mapping[str, nn.Module | None]
    position: Position
    name: str
    folder: Path
    layouts: Sequence[str]
    precision: str

    def write(self) -> list[Exported]:
        """Write every layout; each file is read back and compared."""
        check_layouts(self.layouts, self.weights.facts, self.adapter.kind_of_export)
        self.folder.mkdir(parents=True, exist_ok=True)
        write = self._lora if self.adapter.kind_of_export == "lora" else self._model
        return [write(layout) for layout in self.layouts]

    def _lora(self, layout: str) -> Exported:
        preset, summary = self.loaded.preset, self.adapter.summary()
        state = self.adapter.state()
        card = LoraCard(
            base=self.weights.title,
            architecture=self.weights.facts.modelspec,
            title=preset.export.title or self.name,
            rank=int(summary["rank"]),
            alpha=float(summary["alpha"]),
            precision=self.precision,
            trigger=triggers(preset),
            preset_digest=self.loaded.digest,
            extra=self._extra(),
        )
        metadata = card.metadata() | self.family.lora_metadata(state, layout)
        suffix = "" if layout == "kohya" else f"-{layout}"
        path = self.folder / f"{self.name}{suffix}.safetensors"
        return export_lora(self.family, state, layout, path, self.precision, metadata)

    def _model(self, layout: str) -> Exported:
        parts = self._complete_parts()
        if layout == "diffusers":
            pipeline = self.family.pipeline(self.weights, parts)
            return export_folder(pipeline, self.folder / self.name, self.precision)
        metadata = {
            "modelspec.sai_model_spec": "1.0.1",
            "modelspec.architecture": self.weights.facts.modelspec,
            "modelspec.title": self.loaded.preset.export.title or self.name,
            "trainers.base": self.weights.title,
            "trainers.preset": self.loaded.digest,
            "trainers.trigger": triggers(self.loaded.preset),
            **{f"trainers.{key}": value for key, value in self._extra().items()},
        }
        path = self.folder / f"{self.name}.safetensors"
        state = canonical_state(parts)
        return export_single_file(self.family, self.weights, state, path, self.precision, metadata)

    def _complete_parts(self) -> dict[str, Any]:
        """Every part of the model: the live ones, the others loaded again where they were put away."""
        return {
            name: self.parts.get(name) or self.family.load(name, self.weights, dtype=torch.float32, device="cpu")
            for name in ("denoiser", "vae", "text")
        }

    def _extra(self) -> dict[str, str]:
        """What else a file should tell: family, steps, samples, prediction kind, author and licence where stated."""
        export, facts = self.loaded.preset.export, self.weights.facts
        extra = {
            "family": facts.name,
            "steps": str(self.position.step),
            "samples": str(self.position.samples),
            "prediction": facts.prediction,
            "author": export.author,
            "description": export.description,
            "licence": export.licence,
        }
        if facts.schedule is not None and facts.schedule.zero_terminal_snr:
            extra["zero_terminal_snr"] = "true"
        return {key: value for key, value in extra.items() if value}


def check_layouts(layouts: Sequence[str], facts: Facts, kind: str) -> None:
    """Refuse layouts that the family does not have, all at once, before anything is trained."""
    known = facts.lora_layouts if kind == "lora" else facts.model_layouts
    wrong = [layout for layout in layouts if layout not in known]
    if wrong:
        raise UserError(
            [Problem("export.layouts", _no_layout(facts, layout, kind), _hint(layout, known)) for layout in wrong]
        )


def _no_layout(facts: Facts, layout: str, kind: str) -> str:
    return f'{facts.title} has no layout "{layout}" for a {"LoRA" if kind == "lora" else "model"}'


def _hint(layout: str, known: Sequence[str]) -> str:
    near = nearest(layout, known)
    return f'did you mean "{near}"?' if near else f"known: {', '.join(known)}"


def layouts_of(preset: Preset, facts: Facts, kind: str) -> list[str]:
    """The layouts asked for; all of the family's where the preset names none."""
    if preset.export.layouts is not None:
        return list(preset.export.layouts)
    return list(facts.lora_layouts if kind == "lora" else facts.model_layouts)


def export_of(session: Session) -> Export:
    """The export of a run that has just been trained, into its own folder."""
    preset, adapter = session.loaded.preset, session.state.adapter
    return Export(
        loaded=session.loaded,
        family=session.family,
        weights=session.weights,
        adapter=adapter,
        parts={"denoiser": session.denoiser, "vae": session.vae, "text": session.text},
        position=session.state.position,
        name=session.run.folder.name,
        folder=session.run.exports,
        layouts=layouts_of(preset, session.weights.facts, adapter.kind_of_export),
        precision=preset.export.precision,
    )


def export(
    folder: Path,
    *,
    layouts: Sequence[str] | None = None,
    out: Path | None = None,
    step: int | None = None,
    precision: str | None = None,
    averaged: bool = True,
) -> list[Exported]:
    """Export a checkpoint of a run, the newest or the one of `step`; `averaged` takes the EMA where there is one."""
    from trainers.engine.trained import load_trained

    trained = load_trained(folder, step=step)
    preset, adapter = trained.loaded.preset, trained.state.adapter
    job = Export(
        loaded=trained.loaded,
        family=trained.family,
        weights=trained.painter.weights,
        adapter=adapter,
        parts={"denoiser": trained.painter.denoiser, "vae": trained.painter.vae, "text": trained.text},
        position=trained.state.position,
        name=folder.name if step is None else f"{folder.name}-{trained.state.position.step:06d}",
        folder=out or folder / "exports",
        layouts=layouts or layouts_of(preset, trained.painter.weights.facts, adapter.kind_of_export),
        precision=precision or preset.export.precision,
    )
    with trained.state.evaluation_weights() if averaged else nullcontext():
        return job.write()


def canonical_state(parts: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Whole parts -> canonical names "<part>.<module path>.<leaf>"; the text part splits into its encoders."""
    state: dict[str, Tensor] = {}
    for name, part in parts.items():
        networks: Mapping[str, Any] = dict(part.encoders.items()) if name == "text" else {name: part}  # type: ignore[operator, union-attr]
        for prefix, network in networks.items():
            state |= {f"{prefix}.{key}": value for key, value in network.state_dict().items()}
    return state


def triggers(preset: Preset) -> str:
    """The trigger words of a preset, for people to read."""
    words = [preset.data.trigger_of(concept) for concept in preset.data.concepts]
    return ", ".join(dict.fromkeys(word for word in words if word))
