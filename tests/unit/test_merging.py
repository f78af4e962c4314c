"""What the header of a weight file tells: its family, and how the model is to be sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from trainers.core.errors import UserError
from trainers.core.family import Weights
from trainers.engine.merging import as_trained, family_from, header_of, merge_lora
from trainers.presets.plugins import facts_of

SD15 = Weights("folder", Path(), None, facts_of("sd15"), "", "a base")


@pytest.mark.parametrize(
    ("header", "sources", "family"),
    [
        ({"trainers.family": "sdxl"}, (), "sdxl"),
        ({"trainers.family": "sdxl"}, ("builtin:starter",), "sdxl"),
        ({"trainers.family": "of-tomorrow"}, ("builtin:starter",), "starter"),
        ({}, ("file.safetensors", "builtin:starter"), "starter"),
        ({}, ("file.safetensors", "org/model"), None),
        ({"modelspec.architecture": "/lora"}, (), None),
        ({"modelspec.architecture": "no-such-architecture/lora"}, (), None),
    ],
)
def test_the_family_is_read_where_it_is_written(
    header: dict[str, str], sources: tuple[str, ...], family: str | None
) -> None:
    assert family_from(header, *sources) == family


def test_the_family_is_read_from_modelspec(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: replace(facts_of(name), modelspec=f"{name}-architecture") for name in ("sd15", "sdxl")}
    monkeypatch.setattr("trainers.engine.merging.families", lambda: tuple(known))
    monkeypatch.setattr("trainers.engine.merging.facts_of", known.__getitem__)
    assert family_from({"modelspec.architecture": "sdxl-architecture/lora"}) == "sdxl"
    assert family_from({"modelspec.architecture": "sd15-architecture"}) == "sd15"


def test_only_a_safetensors_file_has_a_header(tmp_path: Path) -> None:
    lora, model = tmp_path / "lora.safetensors", tmp_path / "model.safetensors"
    save_file({"lora_unet_x.lora_down.weight": torch.zeros(1, 1)}, lora, {"trainers.family": "sd15"})
    save_file({"unet.x.weight": torch.zeros(1, 1)}, model)
    assert header_of(lora) == ({"trainers.family": "sd15"}, True)
    assert header_of(model) == ({}, False)
    assert header_of(tmp_path) == header_of(tmp_path / "none.safetensors") == ({}, False)


def test_the_base_is_sampled_as_the_lora_was_trained() -> None:
    assert as_trained(SD15, {}) is SD15
    facts = as_trained(SD15, {"trainers.prediction": "v", "trainers.zero_terminal_snr": "true"}).facts
    assert (facts.prediction, facts.path) == ("v", "ddpm")
    assert facts.schedule is not None
    assert facts.schedule.zero_terminal_snr
    flow = as_trained(SD15, {"trainers.prediction": "velocity"}).facts
    assert (flow.prediction, flow.path) == ("velocity", "rectified")


def lora_of(layer: nn.Linear) -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    return {
        "denoiser.0.lora_A.weight": torch.randn(2, layer.in_features, generator=draws),
        "denoiser.0.lora_B.weight": torch.randn(layer.out_features, 2, generator=draws),
        "denoiser.0.alpha": torch.tensor(1.0),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merging_adds_alpha_over_rank_times_b_a(dtype: torch.dtype) -> None:
    network = nn.Sequential(nn.Linear(5, 3)).to(dtype)
    plain, state = network[0].weight.detach().float().clone(), lora_of(network[0])
    merge_lora({"denoiser": network}, state, 0.5, "a file")
    change = 0.5 * 0.5 * (state["denoiser.0.lora_B.weight"] @ state["denoiser.0.lora_A.weight"])
    torch.testing.assert_close(network[0].weight.detach(), (plain + change).to(dtype))


def test_merged_dora_rows_have_their_length() -> None:
    network = nn.Sequential(nn.Linear(5, 3))
    state = {**lora_of(network[0]), "denoiser.0.dora_scale": torch.tensor([1.0, 2.0, 3.0])}
    merge_lora({"denoiser": network}, state, 1.0, "a file")
    torch.testing.assert_close(network[0].weight.detach().norm(dim=1), torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("name", ["text_encoder.0", "denoiser.1", "denoiser.0.deep"])
def test_layers_that_the_base_lacks_change_nothing(name: str) -> None:
    network = nn.Sequential(nn.Linear(5, 3))
    plain = network[0].weight.detach().clone()
    state = lora_of(network[0])
    state |= {key.replace("denoiser.0", name): value for key, value in lora_of(network[0]).items()}
    with pytest.raises(UserError, match=f"no place for 1 of the 2 layers of this LoRA, first {name}"):
        merge_lora({"denoiser": network}, state, 1.0, "a file")
    assert torch.equal(network[0].weight, plain)
