"""Names and files of every model family: there and back, and read by diffusers itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.family_case import FAMILIES, Case, same
from trainers.core import discover
from trainers.core.errors import UserError


def whole_state(case: Case) -> dict[str, Tensor]:
    parts = {"denoiser": case.denoiser, "vae": case.vae, **case.text.encoders}
    return {f"{part}.{name}": tensor for part, module in parts.items() for name, tensor in module.state_dict().items()}


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("layout", ["single_file", "diffusers"])
def test_model_names_there_and_back(case: Case, layout: str) -> None:
    state = whole_state(case)
    published = case.family.to_published(state, layout)
    assert same(case.family.from_published(published), state)


def make_lora(case: Case, *, dora: bool = False) -> dict[str, Tensor]:
    """A LoRA on every layer of denoiser and text encoders, of mixed ranks and alphas."""
    generator = torch.Generator().manual_seed(5)
    state: dict[str, Tensor] = {}
    for part, name, layer in targeted(case, case.denoiser, case.text):
        number, weight, base = len(state), layer.weight, f"{part}.{name}"
        rank = 4 if number % 9 else 8
        state[f"{base}.lora_A.weight"] = 0.2 * torch.randn(rank, *weight.shape[1:], generator=generator)
        ones = [1] * (weight.ndim - 2)
        state[f"{base}.lora_B.weight"] = 0.2 * torch.randn(weight.shape[0], rank, *ones, generator=generator)
        state[f"{base}.alpha"] = torch.tensor(2.0 if number % 6 else 3.0)
        if dora:
            longer = 1 + 0.2 * torch.rand(weight.shape[0], generator=generator)
            state[f"{base}.dora_scale"] = weight.detach().flatten(1).norm(dim=1) * longer
    return state


def targeted(case: Case, denoiser: nn.Module, text: Any) -> Iterator[tuple[str, str, Any]]:
    facts = case.family.facts
    parts = [("denoiser", denoiser, facts.targets["all"])]
    parts += [(name, encoder, facts.text_targets) for name, encoder in text.encoders.items()]
    for part, module, patterns in parts:
        for name, layer in module.named_modules():
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                yield part, name, layer


def merge(case: Case, parts: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Add a canonical LoRA to the weights themselves, by the formula of the papers."""
    for part, name, layer in targeted(case, parts["denoiser"], parts["text"]):
        base = f"{part}.{name}"
        down, up = state[f"{base}.lora_A.weight"], state[f"{base}.lora_B.weight"]
        change = (up.flatten(1) @ down.flatten(1)).reshape(layer.weight.shape) * (
            state[f"{base}.alpha"] / down.shape[0]
        )
        weight = layer.weight.detach() + change
        if f"{base}.dora_scale" in state:
            length = weight.flatten(1).norm(dim=1)
            weight = weight * (state[f"{base}.dora_scale"] / length).reshape(-1, *[1] * (weight.ndim - 1))
        layer.weight = nn.Parameter(weight, requires_grad=False)
    return dict(parts)


def paint(pipeline: Any) -> Tensor:
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(0)
    picture = pipeline("a cat", num_inference_steps=2, height=64, width=64, output_type="pt", generator=generator)
    return picture.images[0]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(("layout", "dora"), [("kohya", False), ("diffusers", False), ("diffusers", True)])
def test_an_exported_lora_does_the_same_in_a_fresh_pipeline(
    case: Case, layout: str, dora: bool, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    state = make_lora(case, dora=dora)
    wanted = paint(case.family.pipeline(case.weights, merge(case, case.parts(), state)))
    file = tmp_path / "lora.safetensors"
    save_file(case.family.to_published(state, layout), file, case.family.lora_metadata(state, layout))
    pipeline = case.family.pipeline(case.weights, case.parts())
    bare = paint(pipeline)
    pipeline.load_lora_weights(str(file), local_files_only=True)
    networks = [getattr(pipeline, name, None) for name in ("unet", "text_encoder", "text_encoder_2")]
    used = [name for network in networks if network is not None for name in network.state_dict() if ".lora_A." in name]
    assert len(used) == sum(".lora_A." in name for name in state)
    assert (wanted - bare).abs().max() > 0.01
    torch.testing.assert_close(paint(pipeline), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("layout", ["kohya", "diffusers"])
def test_an_exported_lora_reads_back_as_the_same_change(case: Case, layout: str) -> None:
    state = make_lora(case, dora=True)
    back = case.family.from_published(case.family.to_published(state, layout))
    assert back.keys() == state.keys()
    ours, theirs = merge(case, case.parts(), state), merge(case, case.parts(), back)
    for part in ("denoiser", "text"):
        wanted, got = ours[part].state_dict(), theirs[part].state_dict()
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_name_that_is_not_understood_is_an_error(case: Case) -> None:
    with pytest.raises(UserError, match="nonsense"):
        case.family.from_published({"lora_unet_nonsense.lora_down.weight": torch.zeros(1, 1)})
    with pytest.raises(UserError, match="no layout"):
        case.family.to_published({"denoiser.conv_in.lora_A.weight": torch.zeros(1, 1)}, "nonsense")


# ---------------------------------------------------------------- files


@pytest.fixture(scope="module")
def single_file(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("single") / "my model ü.safetensors"
    return case.family.write_single_file(case.weights, file)


def test_a_single_file_is_bit_equal_to_the_folder(case: Case, single_file: Path) -> None:
    weights = case.family.resolve(str(single_file))
    assert weights.form == "single_file"
    assert weights.facts == case.weights.facts
    assert same(case.family.markers(weights), case.family.markers(case.weights))
    for part in ("denoiser", "vae", "text"):
        loaded = case.family.load(part, weights, dtype=torch.float32, device="cpu")
        assert same(loaded.state_dict(), case.load(part).state_dict()), part


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_diffusers_reads_our_single_file(case: Case, single_file: Path) -> None:
    import diffusers

    reader = getattr(diffusers, case.family.pipeline_class)
    pipeline = reader.from_single_file(
        str(single_file), config=str(case.folder), local_files_only=True, safety_checker=None
    )
    assert same(pipeline.unet.state_dict(), case.denoiser.state_dict())
    assert same(pipeline.vae.state_dict(), case.vae.state_dict())
    for name, encoder in case.text.encoders.items():
        assert same(getattr(pipeline, name).state_dict(), encoder.state_dict())


def test_the_weights_of_another_family_are_named(case: Case, single_file: Path) -> None:
    title = case.family.facts.title
    for name in FAMILIES:
        if name != case.family.facts.name:
            other = discover.load("models", name, "family").Family()
            for place in (single_file, case.folder):
                with pytest.raises(UserError, match=title):
                    other.resolve(str(place))


def test_the_digest_names_the_content(case: Case, tmp_path: Path) -> None:
    again = case.family.tiny(tmp_path / "again")
    assert case.family.resolve(str(again)).digest == case.weights.digest
    file = again / "text_encoder" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert case.family.resolve(str(again)).digest != case.weights.digest


def test_embedded_weights_are_what_the_facts_say(case: Case) -> None:
    facts = case.family.facts
    if not facts.default_weights.startswith("builtin:"):
        assert "/" in facts.default_weights
        return
    weights = case.family.resolve(facts.default_weights, offline=True)
    assert weights.facts == facts
    denoiser = case.family.load("denoiser", weights, dtype=torch.float32, device="cpu")
    assert all(denoiser.get_submodule(block) for block in facts.blocks)
