"""Make what is measured: a model of random weights, drawn pictures, and the filled cache."""

from __future__ import annotations

import importlib.resources
import json
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file

from trainers.core.random import generator
from trainers.engine.bench.ours import fill
from trainers.engine.bench.spec import SEED, Case

_COLOURS = ("red", "green", "blue", "yellow", "white", "black")


def prepare_case(case: Case) -> None:
    """Write model, pictures, and the cache with the tensors that both loops train on."""
    write_model(case)
    write_pictures(case)
    save_file(fill(case), case.tensors)


def write_model(case: Case) -> None:
    """Write the model's folder; the published configs of SD 1.5 with other widths."""
    import diffusers
    import transformers

    model = case.model
    vae = {"block_out_channels": model.vae_widths, "layers_per_block": 1}
    unet = {
        "block_out_channels": model.widths,
        "attention_head_dim": model.heads,
        "cross_attention_dim": model.context,
    }
    text = {
        "hidden_size": model.context,
        "intermediate_size": 4 * model.context,
        "num_hidden_layers": model.text_layers,
        "num_attention_heads": 4,
        "projection_dim": model.context,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        diffusers.AutoencoderKL.from_config(_config("vae") | vae).save_pretrained(case.weights / "vae")
        diffusers.UNet2DConditionModel.from_config(_config("unet") | unet).save_pretrained(
            case.weights / "unet", max_shard_size="100GB"
        )
        config = transformers.CLIPTextConfig.from_dict(_config("text_encoder") | text)
        transformers.CLIPTextModel(config).save_pretrained(case.weights / "text_encoder")
    for name in ("model_index.json", "scheduler/scheduler_config.json", "tokenizer/tokenizer_config.json"):
        target = case.weights / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_published(name))


def write_pictures(case: Case) -> None:
    """Draw pictures a little larger than they are trained at, named by what is in them."""
    case.data.mkdir(parents=True, exist_ok=True)
    size = (case.pixels * 5 // 4, case.pixels * 9 // 8)
    for number in range(case.pictures):
        draw = generator(SEED, "bench picture", number)
        noise = draw.integers(0, 60, (size[1], size[0], 3), dtype=np.uint8)
        picture = Image.fromarray(noise)
        pen = ImageDraw.Draw(picture)
        words = []
        for _ in range(3):
            colour = _COLOURS[int(draw.integers(len(_COLOURS)))]
            left, top = (int(draw.integers(edge // 2)) for edge in size)
            pen.ellipse((left, top, left + size[0] // 3, top + size[1] // 3), fill=colour)
            words.append(colour)
        picture.save(case.data / f"{number:02d} {' '.join(words)} circles.jpg", quality=92)


def _published(name: str) -> bytes:
    return (importlib.resources.files("models.sd15") / "configs" / name).read_bytes()


def _config(part: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(_published(f"{part}/config.json"))
    return config
