"""Finding weights: what a person may type, and what is said when it is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from models._shared import hub, weight_files
from trainers.core import discover
from trainers.core.errors import UserError

MARK = "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"


@pytest.fixture(scope="module")
def sd15() -> Any:
    return discover.load("models", "sd15", "family").Family()


@pytest.fixture(scope="module")
def sd2() -> Any:
    return discover.load("models", "sd2", "family").Family()


@pytest.fixture(scope="module")
def folder(sd15: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sd15.tiny(tmp_path_factory.mktemp("sd15") / "tiny")


@pytest.fixture(scope="module")
def sd2_file(sd2: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sd2")
    weights = sd2.resolve(str(sd2.tiny(place / "tiny")))
    file = sd2.write_single_file(weights, place / "model.safetensors")
    state = load_file(file)
    state.pop("v_pred")
    save_file(state, file)
    return file


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_facts_and_resolving_need_no_torch(folder: Path) -> None:
    code = (
        "import sys; from trainers.core import discover\n"
        "for name in discover.names('models'): discover.load('models', name, 'facts')\n"
        "from models._shared import resolve, hub, traits, single_file_facts\n"
        "sys.exit('torch' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0


@pytest.mark.parametrize("text", ["nothing/here.safetensors", "/nowhere", "./nowhere", "C:\\models\\x", "name"])
def test_a_missing_path_is_never_looked_up_on_the_hub(sd15: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_get", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(UserError, match="there is no file or folder"):
        sd15.resolve(text)


def test_an_unknown_embedded_model(sd15: Any) -> None:
    with pytest.raises(UserError, match="no embedded model"):
        sd15.resolve("builtin:nothing")


def test_everything_missing_is_listed_at_once(sd15: Any, copy: Path) -> None:
    shutil.rmtree(copy / "tokenizer")
    (copy / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(UserError) as caught:
        sd15.resolve(str(copy))
    assert len(caught.value.problems) == 2


def test_a_folder_of_single_files_says_which(sd15: Any, tmp_path: Path) -> None:
    (tmp_path / "one.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"one\.safetensors"):
        sd15.resolve(str(tmp_path))


def test_the_scheduler_of_the_folder_decides_the_prediction(sd15: Any, copy: Path) -> None:
    file = copy / "scheduler" / "scheduler_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "prediction_type": "v_prediction", "rescale_betas_zero_snr": True}))
    facts = sd15.resolve(str(copy)).facts
    assert facts.prediction == "v"
    assert facts.schedule.zero_terminal_snr
    assert sd15.facts.prediction == "eps"
    file.write_text(json.dumps({**config, "prediction_type": "mystery"}))
    with pytest.raises(UserError, match="mystery"):
        sd15.resolve(str(copy))


@pytest.mark.parametrize("variant", ["eps", "v"])
def test_tiny_variants(sd2: Any, tmp_path: Path, variant: str) -> None:
    assert sd2.resolve(str(sd2.tiny(tmp_path, variant=variant))).facts.prediction == variant


def test_half_precision_and_pieces_are_found(sd15: Any, copy: Path) -> None:
    whole = copy / "unet" / "diffusion_pytorch_model.safetensors"
    state = load_file(whole)
    names = sorted(state)
    pieces = {"a.safetensors": names[:100], "b.safetensors": names[100:]}
    for piece, inside in pieces.items():
        save_file({name: state[name] for name in inside}, copy / "unet" / piece)
    index = {"weight_map": {name: piece for piece, inside in pieces.items() for name in inside}}
    (copy / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    whole.unlink()
    vae = copy / "vae" / "diffusion_pytorch_model.safetensors"
    vae.rename(vae.with_name("diffusion_pytorch_model.fp16.safetensors"))
    weights = sd15.resolve(str(copy))
    loaded = sd15.load("denoiser", weights, dtype=torch.float32, device="cpu").state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in names)
    (copy / "unet" / "b.safetensors").unlink()
    with pytest.raises(UserError, match=r"b\.safetensors"):
        sd15.resolve(str(copy))


def test_weights_with_a_tensor_missing_are_refused(sd15: Any, copy: Path) -> None:
    file = copy / "unet" / "diffusion_pytorch_model.safetensors"
    state = load_file(file)
    state.pop("conv_in.weight")
    save_file(state, file)
    with pytest.raises(UserError, match=r"conv_in\.weight"):
        sd15.load("denoiser", sd15.resolve(str(copy)), dtype=torch.float32, device="cpu")


def test_old_names_of_the_libraries_load(sd15: Any, copy: Path, folder: Path) -> None:
    text = copy / "text_encoder" / "model.safetensors"
    save_file({f"text_model.{name}": tensor for name, tensor in load_file(text).items()}, text)
    vae = copy / "vae" / "diffusion_pytorch_model.safetensors"
    old = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}
    renamed = {}
    for name, tensor in load_file(vae).items():
        for new, before in old.items():
            name = name.replace(new, before)
        renamed[name] = tensor
    save_file(renamed, vae)
    for part in ("vae", "text"):
        ours = sd15.load(part, sd15.resolve(str(copy)), dtype=torch.float32, device="cpu").state_dict()
        wanted = sd15.load(part, sd15.resolve(str(folder)), dtype=torch.float32, device="cpu").state_dict()
        assert all(torch.equal(ours[name], wanted[name]) for name in wanted)


def test_another_vae(sd15: Any, folder: Path, copy: Path) -> None:
    plain, other = sd15.resolve(str(folder)), sd15.resolve(str(folder), vae=str(copy / "vae"))
    assert other.vae == copy / "vae"
    assert other.digest != plain.digest
    assert sd15.resolve(str(folder), vae=str(copy)).vae == copy / "vae"
    single = sd15.write_single_file(plain, copy / "whole.safetensors")
    from_file = sd15.load("vae", sd15.resolve(str(folder), vae=str(single)), dtype=torch.float32, device="cpu")
    wanted = sd15.load("vae", plain, dtype=torch.float32, device="cpu").state_dict()
    assert all(torch.equal(from_file.state_dict()[name], wanted[name]) for name in wanted)


# ---------------------------------------------------------------- single files


def test_a_yaml_beside_the_file_decides_the_prediction(sd2: Any, sd2_file: Path) -> None:
    beside = sd2_file.with_suffix(".yaml")
    beside.write_text('model:\n  params:\n    parameterization: "v"\n')
    assert sd2.resolve(str(sd2_file)).facts.prediction == "v"
    beside.write_text("model:\n  params:\n    timesteps: 1000\n")
    assert sd2.resolve(str(sd2_file)).facts.prediction == "eps"
    beside.unlink()


@pytest.mark.parametrize(("spread", "prediction"), [(0.2, "v"), (0.02, "eps")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_without_a_word_the_spread_of_one_bias_decides(
    sd2: Any, sd2_file: Path, tmp_path: Path, spread: float, prediction: str, dtype: torch.dtype
) -> None:
    state = load_file(sd2_file)
    state[MARK] = torch.linspace(-1, 1, state[MARK].numel()).mul(spread * 3**0.5).to(dtype)
    file = tmp_path / "plain.safetensors"
    save_file(state, file)
    assert sd2.resolve(str(file)).facts.prediction == prediction


def test_marker_tensors_decide(sd15: Any, folder: Path, tmp_path: Path) -> None:
    file = sd15.write_single_file(sd15.resolve(str(folder)), tmp_path / "m.safetensors")
    state = {**load_file(file), "v_pred": torch.zeros(0), "ztsnr": torch.zeros(0)}
    save_file(state, file)
    facts = sd15.resolve(str(file)).facts
    assert facts.prediction == "v"
    assert facts.schedule.zero_terminal_snr


@pytest.fixture
def single(sd15: Any, folder: Path, tmp_path: Path) -> Path:
    return sd15.write_single_file(sd15.resolve(str(folder)), tmp_path / "model.safetensors")


def test_incomplete_single_files(sd15: Any, folder: Path, single: Path) -> None:
    state = load_file(single)
    no_vae = {name: tensor for name, tensor in state.items() if not name.startswith("first_stage_model.")}
    save_file(no_vae, single)
    with pytest.raises(UserError, match="no VAE"):
        sd15.resolve(str(single))
    assert sd15.resolve(str(single), vae=str(folder)).vae == folder / "vae"
    save_file({name: tensor for name, tensor in no_vae.items() if "model.diffusion" in name}, single)
    with pytest.raises(UserError) as caught:
        sd15.resolve(str(single))
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["lora_unet_x.lora_down.weight"], "a LoRA file"),
        (["double_blocks.0.img_attn.qkv.weight"], "FLUX"),
        (["first_stage_model.decoder.conv_in.weight"], "a VAE alone"),
        (["down_blocks.0.resnets.0.conv1.weight"], "diffusers naming"),
    ],
)
def test_other_kinds_of_files_are_named(sd15: Any, tmp_path: Path, names: list[str], words: str) -> None:
    file = tmp_path / "other.safetensors"
    save_file({name: torch.zeros(1) for name in names}, file)
    with pytest.raises(UserError, match=words):
        sd15.resolve(str(file))


def test_inpainting_models_are_named(sd15: Any, single: Path) -> None:
    state = load_file(single)
    state["model.diffusion_model.input_blocks.0.0.weight"] = torch.zeros(16, 9, 3, 3)
    save_file(state, single)
    with pytest.raises(UserError, match="inpainting"):
        sd15.resolve(str(single))


def test_broken_files_are_named(sd15: Any, single: Path) -> None:
    data = single.read_bytes()
    single.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="cut short"):
        sd15.resolve(str(single))
    single.write_bytes(b"<html>sign in</html>")
    with pytest.raises(UserError, match="not a safetensors file"):
        sd15.resolve(str(single))


def test_a_checkpoint_pickle_is_read_without_running_code(
    sd15: Any, folder: Path, single: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model.ckpt"
    torch.save({"state_dict": load_file(single), "global_step": 7}, file)
    weights = sd15.resolve(str(file))
    loaded = sd15.load("denoiser", weights, dtype=torch.float32, device="cpu").state_dict()
    wanted = sd15.load("denoiser", sd15.resolve(str(folder)), dtype=torch.float32, device="cpu").state_dict()
    assert all(torch.equal(loaded[name], wanted[name]) for name in wanted)


class Trap:
    """Unpickling this would create a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.place), "w")


def test_a_pickle_with_code_is_refused(sd15: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.ckpt"
    torch.save({"state_dict": Trap(tmp_path / "pwned")}, file)
    with pytest.raises(UserError, match="refused"):
        sd15.resolve(str(file))
    assert not (tmp_path / "pwned").exists()


def test_the_digest_sees_every_tensor(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    state = {f"layer {number}": torch.randn(1000) for number in range(5)}
    save_file(state, file)
    before = weight_files.digest_of([file])
    for name in state:
        save_file({**state, name: state[name] * 1.001}, file)
        assert weight_files.digest_of([file]) != before


# ---------------------------------------------------------------- the hub


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    import huggingface_hub

    def snapshot(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)


def answer(code: int) -> Any:
    return SimpleNamespace(status_code=code, headers={}, request=None)


def hub_error(kind: str, code: int) -> Exception:
    from huggingface_hub import errors

    return getattr(errors, kind)("no", response=answer(code))


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("GatedRepoError", 403, "licence"),
        ("RepositoryNotFoundError", 404, "no such model"),
        ("RevisionNotFoundError", 404, "no revision"),
        ("HfHubHTTPError", 401, "hf auth login"),
        ("HfHubHTTPError", 403, "token may not read"),
        ("HfHubHTTPError", 500, "HTTP 500"),
    ],
)
def test_the_hubs_errors_are_translated(
    sd15: Any, monkeypatch: pytest.MonkeyPatch, kind: str, code: int, words: str
) -> None:
    refuse(monkeypatch, hub_error(kind, code))
    with pytest.raises(UserError, match=words):
        sd15.resolve("owner/name@main")


def test_offline_and_not_in_the_cache(sd15: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="working offline"):
        sd15.resolve("owner/name", offline=True)


def test_only_needed_files_are_asked_for(sd15: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[tuple[str, Any, list[str]]] = []

    def snapshot(name: str, *, revision: Any, allow_patterns: list[str], local_files_only: bool) -> str:
        asked.append((name, revision, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert sd15.resolve("owner/name@v1").folder == folder
    assert [name for name, _, _ in asked] == ["owner/name"]
    assert asked[0][1] == "v1"
    assert not any("safetensors" in pattern and "index" not in pattern for pattern in asked[0][2])
