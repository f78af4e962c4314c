"""What is measured: the model, the pictures and the loop of one case. Free of torch."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

RANK, RATE, SEED = 16, 1e-4, 1


@dataclass(frozen=True)
class Model:
    """A Stable Diffusion 1.5 of other widths: its block types, random weights."""

    name: str
    widths: tuple[int, ...]
    heads: int
    context: int
    text_layers: int
    vae_widths: tuple[int, ...]


SMALL = Model("13 M", widths=(64, 128, 128, 128), heads=8, context=128, text_layers=4, vae_widths=(32, 32, 64, 64))
FULL = Model("SD 1.5", widths=(320, 640, 1280, 1280), heads=8, context=768, text_layers=1, vae_widths=(32, 32, 64, 64))
LEAST = Model("least", widths=(32, 32, 32, 32), heads=4, context=32, text_layers=1, vae_widths=(32, 32, 32, 32))
MODELS = {model.name: model for model in (SMALL, FULL, LEAST)}


@dataclass(frozen=True)
class Case:
    """One training: `pictures` of `pixels` squared, `batch` at a time; `rounds` laps of `steps` after `warmup`."""

    folder: Path
    model: Model
    pixels: int
    precision: str = "fp32"
    batch: int = 2
    pictures: int = 64
    warmup: int = 3
    steps: int = 6
    rounds: int = 3

    @property
    def home(self) -> Path:
        """Where the model and the pictures lie."""
        return self.folder / f"{self.model.name.replace(' ', '-')}-{self.pixels}"

    @property
    def weights(self) -> Path:
        """The model's folder, in the layout of diffusers."""
        return self.home / "model"

    @property
    def data(self) -> Path:
        """The folder of the pictures."""
        return self.home / "pictures"

    @property
    def cache(self) -> Path:
        """The filled cache of latents and conditions."""
        return self.home / "cache"

    @property
    def tensors(self) -> Path:
        """The cached latents and conditions as one file, for the plain loop."""
        return self.home / "tensors.safetensors"

    @property
    def preset(self) -> Path:
        """The preset of our run."""
        return self.home / f"{self.precision}.toml"

    def to_json(self) -> str:
        """The case as text, to be handed to another process."""
        values = {**dataclasses.asdict(self), "folder": str(self.folder), "model": self.model.name}
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "folder": Path(values["folder"]), "model": MODELS[values["model"]]})


def preset_text(case: Case) -> str:
    """The preset of our run: a LoRA on the attention layers, AdamW, nothing painted, nothing saved before the end."""
    return f"""version = 1

[run]
length = "{case.warmup + case.rounds * case.steps} steps"
seed = {SEED}

[model]
family = "sd15"
weights = {json.dumps(str(case.weights))}

[train]
kind = "lora"
rank = {RANK}
targets = "attention"

[optimizer]
kind = "adamw"
lr = {RATE}

[data]
batch = {case.batch}
area = "{case.pixels}px"

[[data.concepts]]
folder = {json.dumps(str(case.data))}
captions = "filename"

[compute]
device = "cpu"
precision = "{case.precision}"

[checkpoint]
every = "never"
"""
