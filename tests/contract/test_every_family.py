"""What every model family must keep, on its own tiny instance: the engine relies on nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainers.core import discover
from trainers.core.batch import Condition, Geometry
from trainers.core.errors import UserError

FAMILIES = discover.names("models")
CAPTIONS = ("a photo of a cat", "a painting of a small blue house in the snow")
GEOMETRY = (Geometry((70, 96), (3, 4), (64, 64)), Geometry((64, 64), (0, 0), (64, 64)))


@dataclass
class Case:
    """A family with its tiny instance; parts are loaded when they are first used."""

    family: Any
    folder: Path

    @cached_property
    def weights(self) -> Any:
        return self.family.resolve(str(self.folder))

    def load(self, part: str) -> Any:
        return self.family.load(part, self.weights, dtype=torch.float32, device="cpu")

    @cached_property
    def vae(self) -> Any:
        return self.load("vae")

    @cached_property
    def text(self) -> Any:
        return self.load("text")

    @cached_property
    def denoiser(self) -> Any:
        return self.load("denoiser")

    @property
    def latent_shape(self) -> tuple[int, ...]:
        return (2, self.family.facts.latent_channels, 1, 8, 8)

    def condition(self) -> Condition:
        with torch.no_grad():
            return self.family.collate(self.family.encode_text(self.text, CAPTIONS), (1, 8, 8), GEOMETRY)

    def parts(self) -> dict[str, Any]:
        return {part: self.load(part) for part in ("denoiser", "vae", "text")}


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family = discover.load("models", request.param, "family").Family()
    return Case(family, family.tiny(tmp_path_factory.mktemp(request.param) / "tiny ü"))


def noise(shape: tuple[int, ...], seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def whole_state(case: Case) -> dict[str, Tensor]:
    parts = {"denoiser": case.denoiser, "vae": case.vae, **case.text.encoders}
    return {f"{part}.{name}": tensor for part, module in parts.items() for name, tensor in module.state_dict().items()}


# ---------------------------------------------------------------- facts


def test_facts_name_their_family_and_the_parts_add_up(case: Case) -> None:
    facts = case.family.facts
    assert facts.name in FAMILIES
    assert {limit.encoder for limit in facts.text_limits} == set(facts.text_encoders) == set(case.text.encoders)
    assert facts.latent_channels == case.vae.config.latent_channels
    assert facts.stride_xy == 2 ** (len(case.vae.config.block_out_channels) - 1)
    assert facts.size_multiple % facts.stride_xy == 0
    assert case.weights.facts.prediction == facts.prediction
    assert case.weights.facts.schedule == facts.schedule


def test_parameter_counts_of_the_published_architecture(case: Case) -> None:
    from models._shared.loading import make_module

    architecture = case.family.architecture
    for part, count in case.family.facts.parameters.items():
        with torch.device("meta"):
            module = make_module(architecture.config(part))
        assert sum(parameter.numel() for parameter in module.parameters()) == count, part


def test_target_patterns_match_layers(case: Case) -> None:
    layers = {name for name, module in case.denoiser.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    names = [name for name, _ in case.denoiser.named_modules()]
    for patterns in case.family.facts.targets.values():
        for pattern in patterns:
            hits = {name for name in names if fnmatchcase(name, pattern)}
            assert hits, pattern
            assert hits <= layers, pattern
    everything = case.family.facts.targets["all"]
    assert {name for name in layers if any(fnmatchcase(name, pattern) for pattern in everything)} == layers


def test_text_target_patterns_match_layers(case: Case) -> None:
    for encoder in case.text.encoders.values():
        layers = [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]
        for pattern in case.family.facts.text_targets:
            assert any(fnmatchcase(name, pattern) for name in layers), pattern


def test_blocks_are_in_order_of_execution_and_cover_the_network(case: Case) -> None:
    blocks = case.family.facts.blocks
    order: list[str] = []
    hooks = [
        case.denoiser.get_submodule(name).register_forward_hook(lambda *_, name=name: order.append(name))
        for name in blocks
    ]
    with torch.no_grad():
        case.family.predict(case.denoiser, noise(case.latent_shape), torch.tensor([0.3, 0.6]), case.condition())
    for hook in hooks:
        hook.remove()
    assert tuple(order) == blocks
    outside = [
        name
        for name, _ in case.denoiser.named_parameters()
        if not name.startswith(tuple(f"{block}." for block in blocks))
    ]
    rim = ("conv_in.", "conv_out.", "conv_norm_out.", "time_embedding.", "add_embedding.")
    assert all(name.startswith(rim) for name in outside)


# ---------------------------------------------------------------- shapes and values


def test_pixels_and_latents(case: Case) -> None:
    pixels = noise((2, 3, 1, 64, 64)).clamp(-1, 1)
    with torch.no_grad():
        mean = case.family.encode_pixels(case.vae, pixels, None)
        drawn = case.family.encode_pixels(case.vae, pixels, torch.ones(case.latent_shape))
        back = case.family.decode_latents(case.vae, mean)
    assert mean.shape == case.latent_shape
    assert mean.dtype == drawn.dtype == back.dtype == torch.float32
    assert (drawn > mean).all()
    assert back.shape == pixels.shape
    assert back.abs().max() <= 1


def test_one_sample_alone_is_the_same_in_a_batch(case: Case) -> None:
    family = case.family
    x_t, t = noise(case.latent_shape), torch.tensor([0.2, 0.9])
    with torch.no_grad():
        together = family.predict(case.denoiser, x_t, t, case.condition())
        for number, caption in enumerate(CAPTIONS):
            single = family.encode_text(case.text, [caption])
            condition = family.collate(single, (1, 8, 8), GEOMETRY[number : number + 1])
            alone = family.predict(case.denoiser, x_t[number : number + 1], t[number : number + 1], condition)
            torch.testing.assert_close(alone[0], together[number], rtol=1e-4, atol=1e-5)
    assert together.shape == x_t.shape
    assert together.dtype == torch.float32


def test_the_time_becomes_the_whole_timestep_below(case: Case) -> None:
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, sample: Tensor, timestep: Tensor, **rest: Any) -> tuple[Tensor]:
            seen.append(timestep)
            return (sample,)

    t = torch.tensor([0.0, 0.0004, 0.5005, 1.0])
    conditions = [case.family.encode_text(case.text, ["a"])[0]] * 4
    condition = case.family.collate(conditions, (1, 8, 8), [GEOMETRY[1]] * 4)
    case.family.predict(Spy(), noise((4, *case.latent_shape[1:])), t, condition)
    assert seen[0].tolist() == [0, 0, 500, 999]


def test_text_is_encoded_as_the_reference_pipeline_does(case: Case) -> None:
    pipeline = case.family.pipeline(case.weights, {"denoiser": case.denoiser, "vae": case.vae, "text": case.text})
    ours = case.family.encode_text(case.text, CAPTIONS[:1])[0]
    theirs = pipeline.encode_prompt(
        CAPTIONS[0], device="cpu", num_images_per_prompt=1, do_classifier_free_guidance=False
    )
    torch.testing.assert_close(ours["context"], theirs[0][0], rtol=0, atol=1e-6)
    if "pooled" in ours:
        torch.testing.assert_close(ours["pooled"], theirs[2][0], rtol=0, atol=1e-6)
        size = GEOMETRY[0]
        ids = pipeline._get_add_time_ids(size.original, size.crop, size.target, torch.float32, ours["pooled"].shape[-1])
        assert torch.equal(case.condition()["time_ids"][:1], ids)


def test_the_null_condition_is_the_empty_caption(case: Case) -> None:
    with torch.no_grad():
        null, empty = case.family.null_condition(case.text), case.family.encode_text(case.text, [""])[0]
    assert same(null, empty)


def test_tokens_are_counted_without_the_marks(case: Case) -> None:
    for limit in case.family.facts.text_limits:
        has, fits = case.family.count_tokens(case.text, " ".join(["a"] * 200))[limit.encoder]
        assert (has, fits) == (200, limit.tokens - limit.special)
        assert case.family.count_tokens(case.text, "")[limit.encoder][0] == 0


def test_the_vae_stays_in_float32(case: Case) -> None:
    vae = case.family.load("vae", case.weights, dtype=torch.float16, device="cpu")
    assert {parameter.dtype for parameter in vae.parameters()} == {torch.float32}


def test_parts_come_frozen_and_in_the_asked_precision(case: Case) -> None:
    denoiser = case.family.load("denoiser", case.weights, dtype=torch.bfloat16, device="cpu")
    assert {parameter.dtype for parameter in denoiser.parameters()} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in denoiser.parameters())
    answer = case.family.predict(denoiser, noise(case.latent_shape), torch.tensor([0.3, 0.6]), case.condition())
    assert answer.dtype == torch.float32
    assert answer.isfinite().all()


# ---------------------------------------------------------------- gradients


def gradients(case: Case, denoiser: nn.Module) -> dict[str, Tensor]:
    denoiser.requires_grad_(True)
    answer = case.family.predict(denoiser, noise(case.latent_shape), torch.tensor([0.3, 0.6]), case.condition())
    (answer - noise(case.latent_shape, 4)).square().mean().backward()
    return {name: parameter.grad for name, parameter in denoiser.named_parameters()}


def test_a_gradient_reaches_every_weight_with_and_without_checkpointing(case: Case) -> None:
    plain = gradients(case, case.load("denoiser"))
    for name, gradient in plain.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name
    checkpointed = case.load("denoiser")
    checkpointed.enable_gradient_checkpointing()
    for name, gradient in gradients(case, checkpointed).items():
        torch.testing.assert_close(gradient, plain[name], rtol=0, atol=1e-6)


def test_a_gradient_reaches_the_text_encoders(case: Case) -> None:
    text = case.load("text")
    text.requires_grad_(True)
    conditions = case.family.encode_text(text, CAPTIONS)
    torch.stack([tensor.square().mean() for condition in conditions for tensor in condition.values()]).sum().backward()
    for encoder in text.encoders.values():
        reached = [name for name, parameter in encoder.named_parameters() if parameter.grad is not None]
        assert any("layers.0.self_attn.q_proj" in name for name in reached)


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
    folder = case.family.architecture.configs
    if not (folder / "unet" / "diffusion_pytorch_model.safetensors").is_file():
        pytest.skip("the embedded weights are not trained yet")
    weights = case.family.resolve(facts.default_weights, offline=True)
    assert weights.facts == facts
    denoiser = case.family.load("denoiser", weights, dtype=torch.float32, device="cpu")
    assert all(denoiser.get_submodule(block) for block in facts.blocks)
