"""Random small instances of the Stable Diffusion families: the published blocks and layers, only narrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from trainers.core.facts import Facts

from .architecture import FOLDER_OF_PART, TOKENIZER_OF_PART, Architecture
from .clip_tokenizer import TINY_CORPUS, tiny_tokenizer
from .loading import make_module
from .resolve import read_json
from .schedulers import make_scheduler

TOKENS = 600
_TEXT_WIDTH = {"text_encoder": 24, "text_encoder_2": 40}
_SEED = 20


def write(folder: Path, architecture: Architecture, *, variant: str = "") -> Path:
    """Write the tiny instance to `folder`; the same family gives the same bytes."""
    facts, configs = architecture.facts, architecture.configs
    folder.mkdir(parents=True, exist_ok=True)
    for part in architecture.parts:
        config = _narrow(part, architecture.config(part), facts)
        _write_part(folder / FOLDER_OF_PART[part], config)
    for part in facts.text_encoders:
        _write_tokenizer(folder / TOKENIZER_OF_PART[part], configs / TOKENIZER_OF_PART[part])
    _write_scheduler(folder, facts, variant)
    (folder / "model_index.json").write_text((configs / "model_index.json").read_text("utf-8"), "utf-8")
    return folder


def _narrow(part: str, config: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Make a published config narrow: few channels, one or two layers of text, the same blocks."""
    small = dict(config)
    if part == "denoiser":
        levels = len(config["block_out_channels"])
        small["block_out_channels"] = [16, 16, 32, 32][:levels]
        small["norm_num_groups"] = 4
        small["attention_head_dim"] = 2 if isinstance(config["attention_head_dim"], int) else [2] * levels
        small["cross_attention_dim"] = sum(_TEXT_WIDTH[name] for name in facts.text_encoders)
        small["sample_size"] = 8
        if "transformer_layers_per_block" in config:
            small["transformer_layers_per_block"] = [1, 1, 2][:levels]
        if config.get("addition_embed_type") == "text_time":
            small["addition_time_embed_dim"] = 8
            small["projection_class_embeddings_input_dim"] = 6 * 8 + _TEXT_WIDTH["text_encoder_2"]
    elif part == "vae":
        small["block_out_channels"] = [8, 8, 16, 16][: len(config["block_out_channels"])]
        small["norm_num_groups"] = 4
        small["sample_size"] = 64
    else:
        width = _TEXT_WIDTH[part]
        small.update(hidden_size=width, intermediate_size=4 * width, num_attention_heads=2, num_hidden_layers=2)
        small.update(
            projection_dim=width, vocab_size=TOKENS, bos_token_id=TOKENS - 2, eos_token_id=TOKENS - 1, pad_token_id=0
        )
    return small


def _write_part(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        module = make_module(config)
        for name, parameter in module.named_parameters():
            if parameter.ndim == 1 and "norm" in name:  # differ from 1 and 0, so that mixed-up norms are noticed
                torch.nn.init.normal_(parameter, mean=1.0 if name.endswith("weight") else 0.0, std=0.05)
    stem = "model" if "architectures" in config else "diffusion_pytorch_model"
    save_file(
        {name: tensor.contiguous() for name, tensor in module.state_dict().items()}, folder / f"{stem}.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _write_tokenizer(folder: Path, published: Path) -> None:
    settings = read_json(published / "tokenizer_config.json")
    tokenizer = tiny_tokenizer(TINY_CORPUS, size=TOKENS, pad=settings["pad_token"], length=settings["model_max_length"])
    tokenizer.save_pretrained(str(folder))


def _write_scheduler(folder: Path, facts: Facts, variant: str) -> None:
    import dataclasses
    from typing import cast

    from trainers.core.errors import UserError
    from trainers.core.facts import PredictionKind

    if variant not in ("", "eps", "v"):
        raise UserError(f'there is no tiny variant "{variant}"', remedy='known: "", "eps", "v"')
    chosen = dataclasses.replace(facts, prediction=cast(PredictionKind, variant)) if variant else facts
    make_scheduler(chosen).save_pretrained(str(folder / "scheduler"))
