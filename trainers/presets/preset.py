"""A whole preset: what is trained, on which data, and how the result is saved. Free of torch."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any, Literal

from trainers.core.facts import Facts
from trainers.core.plugin import Config, option
from trainers.data.config import DataConfig

from .plugins import OBJECTIVE_OF_PATH, PLUGIN_PACKAGES, choice, configs
from .sections import Checkpoint, Compute, Ema, Export, Logging, Model, Preview, Run, Schedule, Step, Validation

CURRENT_VERSION = 1

if TYPE_CHECKING:
    # The members are found at run time; a type checker sees what they have in common.
    from trainers.core.plugin import Config as AnyAdapter
    from trainers.core.plugin import Config as AnyObjective
    from trainers.core.plugin import Config as AnyOptimizer
else:
    AnyAdapter = choice(PLUGIN_PACKAGES["train"])
    AnyObjective = choice(PLUGIN_PACKAGES["objective"])
    AnyOptimizer = choice(PLUGIN_PACKAGES["optimizer"])


class Preset(Config):
    """Everything a run needs to know. Paths in it are relative to the folder of the preset's file."""

    version: Literal[1] = option(help="Version of the preset format; 1 today.")
    run: Run = option(help="Name, length and seed.")
    model: Model = option(help="What to start from.")
    train: AnyAdapter = option(help="Which weights are trained, and how.")
    objective: AnyObjective | None = option(None, "What the training asks for. Left out: as the family was trained.")
    optimizer: AnyOptimizer = option(help="How weights follow gradients, and at which rate.")
    schedule: Schedule = option(Schedule(), "The learning rate over the run.")
    data: DataConfig = option(help="Pictures and captions.")
    ema: Ema = option(Ema(), "Average of the weights.")
    compute: Compute = option(Compute(), "Limits and wishes about the machine.")
    step: Step = option(Step(), "Safety of each update.")
    preview: Preview = option(Preview(), "Pictures painted during the run.")
    validation: Validation = option(Validation(), "Loss on held-out pictures.")
    checkpoint: Checkpoint = option(Checkpoint(), "Saved states.")
    export: Export = option(Export(), "The finished files.")
    logging: Logging = option(Logging(), "What is written down.")

    def values(self) -> dict[str, Any]:
        """Return plain values as they stand in a preset file; what is None is left out, since TOML has no null."""
        return self.model_dump(mode="json", exclude_none=True)


def native_area(facts: Facts) -> str:
    """Write the area a family was made for as a preset does: "512px" for a square, else "1.5 MP"."""
    edge = isqrt(facts.native_area)
    return f"{edge}px" if edge * edge == facts.native_area else f"{facts.native_area / 2**20:.10g} MP"


def export_kind(preset: Preset) -> Literal["lora", "model"]:
    """Tell whether the result is a file of adapters or a whole model."""
    return "model" if getattr(preset.train, "kind", "") == "full" else "lora"


def layouts_of(preset: Preset, facts: Facts) -> tuple[str, ...]:
    """List the layouts the family knows for this kind of result."""
    return facts.model_layouts if export_kind(preset) == "model" else facts.lora_layouts


def resolve(preset: Preset, facts: Facts) -> Preset:
    """Fill in what depends on the family: weights, objective, area and export layouts."""
    changes: dict[str, Any] = {}
    if preset.objective is None:
        kind = OBJECTIVE_OF_PATH[facts.path]
        changes["objective"] = configs(PLUGIN_PACKAGES["objective"])[kind](kind=kind)  # type: ignore[call-arg]
    if preset.model.weights is None and facts.default_weights:
        changes["model"] = preset.model.model_copy(update={"weights": facts.default_weights})
    if preset.data.area is None:
        changes["data"] = preset.data.model_copy(update={"area": native_area(facts)})
    if preset.export.layouts is None:
        changes["export"] = preset.export.model_copy(update={"layouts": list(layouts_of(preset, facts))})
    return preset.model_copy(update=changes)
