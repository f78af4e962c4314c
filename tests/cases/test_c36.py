"""C36: every exported file, loaded by a fresh diffusers pipeline, paints what the live model paints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers.loaders import lora_conversion_utils
from safetensors import safe_open
from torch import Tensor, nn

from tests.tiny import Finished, Workbench, tiny_model
from trainers.engine.trained import Trained, load_trained
from trainers.memory.device import evaluating

PROMPT, NEGATIVE, STEPS, GUIDANCE = "a red circle on white ground", "grey", 2, 3.0
LORA = {"kind": "lora", "rank": 8, "alpha": 4, "targets": "all", "conv_rank": 8, "conv_alpha": 4}
PARTS = {"sd15": ["denoiser", "text_encoder"], "sdxl": ["denoiser", "text_encoder", "text_encoder_2"]}
PIPELINES = {"sd15": "StableDiffusionPipeline", "sdxl": "StableDiffusionXLPipeline"}
CASES = [("sd15", False), ("sd15", True), ("sdxl", False)]


def noise() -> Tensor:
    return torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(5))


def painted(pipeline: Any) -> Tensor:
    """One picture [3, Y, X] of a pipeline by itself, from text to pixels."""
    pipeline.set_progress_bar_config(disable=True)
    with torch.no_grad():
        return pipeline(
            PROMPT, negative_prompt=NEGATIVE, latents=noise(), height=64, width=64, num_inference_steps=STEPS,
            guidance_scale=GUIDANCE, output_type="pt",
        ).images[0]  # fmt: skip


def live(trained: Trained) -> Tensor:
    """The same picture of the live model, through the same pipeline class around its own networks."""
    painter = trained.painter
    parts = {"denoiser": painter.denoiser, "vae": painter.vae, "text": trained.text}
    with evaluating(painter.denoiser, painter.vae, trained.text):
        return painted(trained.family.pipeline(painter.weights, parts))


def fresh(bench: Workbench, family: str) -> Any:
    kind = getattr(diffusers, PIPELINES[family])
    extra = {"safety_checker": None} if family == "sd15" else {"add_watermarker": False}
    return kind.from_pretrained(tiny_model(bench.models, family), **extra)


def load(pipeline: Any, file: Path) -> None:
    """Load a LoRA as `load_lora_weights` does.

    That function throws the magnitudes of a DoRA in kohya layout away before it converts the names, though converter
    and layers know them, and ComfyUI reads them. So such a file goes through converter and loaders one by one. PEFT
    counts the outputs of a convolution on axis 1 of its magnitude, kohya and ComfyUI on axis 0, and the converter
    leaves a "down" in the names of a text encoder's MLP.
    """
    with safe_open(file, "pt") as handle:
        state = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 - not a dict
    if not any(name.endswith("dora_scale") for name in state):
        pipeline.load_lora_weights(file)
        return
    converted, alphas = lora_conversion_utils._convert_non_diffusers_lora_to_diffusers(state)
    for name in [name for name in converted if "magnitude" in name]:
        value = converted.pop(name)
        value = value.transpose(0, 1) if value.ndim == 4 else value.flatten()
        converted[name.replace("magnitude_vector.down.", "magnitude_vector.")] = value
    pipeline.load_lora_into_unet(converted, alphas, pipeline.unet, adapter_name="lora")
    pipeline.load_lora_into_text_encoder(
        converted, alphas, pipeline.text_encoder, prefix="text_encoder", adapter_name="lora"
    )


@dataclass(frozen=True)
class Export:
    """A run and its live model."""

    run: Finished
    trained: Trained
    family: str
    dora: bool

    def file(self, layout: str) -> Path:
        suffix = {"kohya": "", "diffusers": "-diffusers"}[layout]
        return self.run.folder / "exports" / f"{self.run.folder.name}{suffix}.safetensors"


@contextmanager
def no_fuss(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A loader that drops or misses keys says so in its log; here that is an error."""
    logger = diffusers.utils.logging.get_logger("diffusers")
    propagate, level = logger.propagate, logger.level
    logger.propagate = True
    logger.setLevel("WARNING")
    caplog.clear()
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
    said = [record.getMessage() for record in caplog.records]
    assert not [text for text in said if "key" in text.lower() or "lora" in text.lower()], said


@pytest.fixture(scope="module")
def exports(session_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Export]:
    return {}


@pytest.fixture(params=CASES, ids=["sd15 lora", "sd15 dora", "sdxl lora"])
def export(
    request: pytest.FixtureRequest, bench: Workbench, exports: dict[tuple[str, bool], Export], session_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Export:  # fmt: skip
    family, dora = request.param
    if request.param not in exports:
        own = Workbench(tmp_path_factory.mktemp("c36"), bench.models, bench.cache)
        run = own.run(
            {
                "run": {"length": "3 steps"},
                "train": {**LORA, "parts": PARTS[family], "dora": dora},
                "data": {"trigger": "zkw"},
                "optimizer": {"lr": 3e-2},
                "export": {"layouts": ["kohya", "diffusers"]},
            },
            "zkw lora",
            family=family,
        )
        exports[request.param] = Export(run, load_trained(run.folder), family, dora)
    return exports[request.param]


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_a_fresh_pipeline_paints_the_same(
    bench: Workbench, export: Export, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = live(export.trained)
    pipeline = fresh(bench, export.family)
    base = painted(pipeline)
    assert float((base - wanted).abs().max()) > 1e-2  # the LoRA does something
    with no_fuss(caplog):
        load(pipeline, export.file(layout))
    assert float((painted(pipeline) - wanted).abs().max()) < 1e-4


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_keys_written_are_keys_consumed(bench: Workbench, export: Export, layout: str) -> None:
    with safe_open(export.file(layout), "pt") as file:
        written = [name for name in file.keys() if not name.endswith("alpha")]  # noqa: SIM118 - not a dict
    pipeline = fresh(bench, export.family)
    load(pipeline, export.file(layout))
    networks = [part for name, part in pipeline.components.items() if isinstance(part, nn.Module) and name != "vae"]
    held = [name for network in networks for name, _ in network.named_parameters() if ".lora_" in name]
    assert len(held) == len(written)
    state = export.trained.state.adapter.state()
    assert len(written) == sum(not name.endswith(".alpha") for name in state)
    assert len({name.partition(".")[0] for name in state}) == len(PARTS[export.family])
    assert any(tensor.ndim == 4 and tensor.shape[-1] == 3 for tensor in state.values())  # convolutions are in it


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_merged_change_is_half_of_b_a(bench: Workbench, export: Export, layout: str) -> None:
    pipeline = fresh(bench, export.family)
    parts = {"denoiser": pipeline.unet, "text_encoder": pipeline.text_encoder}
    before = {name: {k: v.clone() for k, v in part.state_dict().items()} for name, part in parts.items()}
    load(pipeline, export.file(layout))
    names = ["unet", "text_encoder"] + (["text_encoder_2"] if export.family == "sdxl" else [])
    pipeline.fuse_lora(components=names)
    pipeline.unload_lora_weights()
    state = export.trained.state.adapter.state()
    checked = 0
    for name in (key.removesuffix(".lora_A.weight") for key in state if key.endswith(".lora_A.weight")):
        part, _, path = name.partition(".")
        if part not in parts:
            continue
        weight = parts[part].state_dict()[f"{path}.weight"]
        plain = before[part][f"{path}.weight"]
        a, b = state[f"{name}.lora_A.weight"], state[f"{name}.lora_B.weight"]
        merged = plain + 0.5 * (b.flatten(1) @ a.flatten(1)).view(plain.shape)
        if export.dora:
            norm = torch.linalg.vector_norm(merged.flatten(1), dim=1)
            merged = merged * (state[f"{name}.dora_scale"] / norm).view(-1, *[1] * (merged.ndim - 1))
        torch.testing.assert_close(weight, merged, rtol=0, atol=1e-5, msg=name)
        checked += 1
    assert checked > 40


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_the_header_says_what_the_file_is(export: Export, layout: str) -> None:
    with safe_open(export.file(layout), "pt") as file:
        header = file.metadata()
        alphas = {float(file.get_tensor(name)) for name in file.keys() if name.endswith(".alpha")}  # noqa: SIM118
    wanted = {"rank": "8", "alpha": "4", "precision": "fp32", "trigger": "zkw", "steps": "3"}
    assert {key: header[f"trainers.{key}"] for key in wanted} == wanted
    assert header["ss_network_dim"] == "8"
    assert header["ss_network_alpha"] == "4"
    assert header["modelspec.trigger_phrase"] == "zkw"
    assert f"tiny-{export.family}" in header["trainers.base"]
    assert layout == "diffusers" or alphas == {4.0}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_files_come_close(bench: Workbench, precision: str) -> None:
    settings = {"run": {"length": "2 steps"}, "train": LORA, "export": {"precision": precision}}
    run = bench.run(settings)
    wanted = live(load_trained(run.folder))
    pipeline = fresh(bench, "sd15")
    pipeline.load_lora_weights(run.folder / "exports" / "run.safetensors")
    assert float((painted(pipeline) - wanted).abs().max()) < {"fp16": 2e-3, "bf16": 2e-2}[precision]


def test_a_full_fine_tune_is_read_back_as_folder_and_as_single_file(bench: Workbench) -> None:
    run = bench.run(
        {
            "run": {"length": "3 steps"},
            "train": {"kind": "full", "parts": ["denoiser", "text_encoder"], "lr": {"text_encoder": 1e-3}},
            "optimizer": {"lr": 3e-3},
            "export": {"layouts": ["diffusers", "single_file"]},
        },
        "whole model",
    )
    wanted = live(load_trained(run.folder))
    assert float((painted(fresh(bench, "sd15")) - wanted).abs().max()) > 1e-2
    kind = diffusers.StableDiffusionPipeline
    folder = kind.from_pretrained(run.folder / "exports" / "whole model", safety_checker=None)
    assert float((painted(folder) - wanted).abs().max()) < 1e-4
    single = kind.from_single_file(
        str(run.folder / "exports" / "whole model.safetensors"), config=str(tiny_model(bench.models)),
        local_files_only=True, safety_checker=None,
    )  # fmt: skip
    assert float((painted(single) - wanted).abs().max()) < 1e-4
