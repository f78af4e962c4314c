"""What every model family must keep, on its own tiny instance: the engine relies on nothing else."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from tests.family_case import CAPTIONS, FAMILIES, GEOMETRY, Case, noise, same

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
