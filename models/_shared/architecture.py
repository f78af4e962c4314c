"""What tells one Stable Diffusion family from another in files: its configs and the forms of its published names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainers.core.facts import Facts

FOLDER_OF_PART = {"denoiser": "unet", "vae": "vae", "text_encoder": "text_encoder", "text_encoder_2": "text_encoder_2"}
TOKENIZER_OF_PART = {"text_encoder": "tokenizer", "text_encoder_2": "tokenizer_2"}


@dataclass(frozen=True)
class TextForm:
    """How a text encoder is written in single files and in today's transformers.

    `prefix` stands before its names in a single file; `open_clip`: OpenCLIP's names and fused matrices there;
    `spare_layer`: the file has one more layer than is used; `wrapped`: transformers' names begin with "text_model.".
    """

    prefix: str
    open_clip: bool = False
    spare_layer: bool = False
    wrapped: bool = False


@dataclass(frozen=True)
class Architecture:
    """`configs` is the bundled folder of configs. `kohya_original`: kohya LoRA files use the original module names.

    `telltale` names a tensor of a single file whose spread above `threshold` means v-prediction.
    """

    facts: Facts
    configs: Path
    texts: Mapping[str, TextForm]
    kohya_original: bool = False
    telltale: str = ""
    threshold: float = 0.0

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that hold weights."""
        return ("denoiser", "vae", *self.facts.text_encoders)

    def config(self, part: str) -> dict[str, Any]:
        """Read the bundled config of a part."""
        return _config(self.configs / FOLDER_OF_PART[part] / "config.json")


@lru_cache(maxsize=64)
def _config(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
