"""Find the weights of a model before anything is loaded: a folder, a single file, a hub id, an embedded model.

Torch-free. A local path never uses the network. A folder has diffusers' layout; a single file the original layout
(A1111, ComfyUI).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from trainers.core.digest import of_file, of_json
from trainers.core.errors import Problem, UserError
from trainers.core.facts import Facts, NoiseSchedule, PredictionKind
from trainers.core.family import Weights
from trainers.core.places import expanded

from . import hub, single_file_facts, traits, weight_files
from .architecture import FOLDER_OF_PART, TOKENIZER_OF_PART, Architecture

BUILTIN = "builtin:"
_MODELS = Path(__file__).resolve().parents[1]
_PREDICTIONS: dict[str, PredictionKind] = {
    "epsilon": "eps",
    "v_prediction": "v",
    "sample": "x0",
    "flow_prediction": "velocity",
}
_WEIGHT_ENDINGS = (
    (".safetensors", ".safetensors.index.json"),
    (".fp16.safetensors", ".safetensors.index.fp16.json"),
)


def resolve(weights: str, architecture: Architecture, *, vae: str | None, offline: bool) -> Weights:
    """Find every file of `weights`, and read from the files what they are."""
    parts = tuple(FOLDER_OF_PART[part] for part in architecture.parts)
    place = local_place(weights) or hub.fetch(weights, parts=parts, offline=offline)
    if place.is_dir():
        found = _resolve_folder(place, architecture)
    else:
        found = _resolve_file(place, architecture, has_vae=vae is not None)
    if vae:
        found = _with_vae(found, local_place(vae) or hub.fetch_vae(vae, offline=offline))
    return found


def local_place(weights: str) -> Path | None:
    """Return the folder or file that `weights` names, or None for a hub id; a missing path is an error."""
    if weights.startswith(BUILTIN):
        folder = _MODELS / weights.removeprefix(BUILTIN) / "weights"
        if not folder.is_dir():
            raise UserError(f'there is no embedded model "{weights}"', remedy='the embedded one is "builtin:starter"')
        return folder
    path = expanded(weights)
    if path.exists():
        return path.resolve()
    is_path = path.is_absolute() or weights.startswith((".", "~")) or "\\" in weights
    if is_path or path.suffix in (".safetensors", *weight_files.PICKLES) or not hub.looks_like_id(weights):
        raise UserError(
            f'there is no file or folder "{weights}"', remedy="check the path; a model on the hub is written owner/name"
        )
    return None


def weight_paths(folder: Path) -> tuple[Path, ...]:
    """Return the weight files of a part's folder: one, or the pieces that an index lists; full precision first."""
    for stem in ("diffusion_pytorch_model", "model", "pytorch_model"):
        for single, index in _WEIGHT_ENDINGS:
            if (folder / (stem + single)).is_file():
                return (folder / (stem + single),)
            if (folder / (stem + index)).is_file():
                pieces = set(read_json(folder / (stem + index))["weight_map"].values())
                return tuple(folder / piece for piece in sorted(pieces))
        if (folder / f"{stem}.bin").is_file():
            return (folder / f"{stem}.bin",)
    return ()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a broken file is named."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"can't be read: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise UserError("is not a JSON object", where=str(path))
    return content


def _resolve_folder(folder: Path, architecture: Architecture) -> Weights:
    facts = architecture.facts
    unet = folder / "unet" / "config.json"
    found = traits.of_config(read_json(unet)) if unet.is_file() else None
    if found and not traits.belongs(found, facts):
        raise _wrong_family(folder, found, facts)
    _check_folder(folder, architecture)
    files = [path for part in architecture.parts for path in weight_paths(folder / FOLDER_OF_PART[part])]
    refined = refine(facts, folder)
    content = of_json([weight_files.digest_of(files), refined.prediction, _small_files(folder)])
    return Weights("folder", folder, None, refined, content, folder.name)


def _check_folder(folder: Path, architecture: Architecture) -> None:
    """List everything that a diffusers folder lacks, at once."""
    problems = []
    for part in architecture.parts:
        inside = folder / FOLDER_OF_PART[part]
        if not (inside / "config.json").is_file():
            problems.append(Problem(str(inside), "config.json is missing"))
        files = weight_paths(inside)
        absent = [file.name for file in files if not file.is_file()]
        if not files or absent:
            problems.append(Problem(str(inside), f"weights are missing: {', '.join(absent) or 'no .safetensors file'}"))
        tokenizer = TOKENIZER_OF_PART.get(part)
        if tokenizer and not (folder / tokenizer).is_dir():
            problems.append(Problem(str(folder / tokenizer), "the tokenizer folder is missing"))
    if problems:
        if not (folder / "unet").is_dir():
            single = sorted(path.name for path in folder.glob("*.safetensors"))
            remedy = (
                f"give a file inside it: {', '.join(single[:5])}" if single else "give a folder in diffusers' layout"
            )
            raise UserError(
                f"is not a {architecture.facts.title} folder: it has no unet/", where=str(folder), remedy=remedy
            )
        raise UserError(problems)


def _small_files(folder: Path) -> str:
    """Digest the configs and tokenizers: they change encodings too."""
    names = sorted(
        path for path in folder.glob("*/*") if path.suffix in (".json", ".txt") and path.stat().st_size < 20_000_000
    )
    return of_json([[path.relative_to(folder).as_posix(), of_file(path)] for path in names])


def refine(facts: Facts, folder: Path) -> Facts:
    """Read prediction kind, noise schedule and native size from a folder's scheduler and U-Net configs."""
    sample_size = read_json(folder / "unet" / "config.json").get("sample_size")
    if isinstance(sample_size, int):
        facts = dataclasses.replace(facts, native_area=(sample_size * facts.stride_xy) ** 2)
    path = folder / "scheduler" / "scheduler_config.json"
    if not path.is_file():
        return facts
    config = read_json(path)
    word = str(config.get("prediction_type", "epsilon"))
    if word not in _PREDICTIONS:
        known = ", ".join(_PREDICTIONS)
        raise UserError(f'prediction_type "{word}" is not known', where=str(path), remedy=f"known: {known}")
    default = facts.schedule or NoiseSchedule()
    schedule = NoiseSchedule(
        steps=int(config.get("num_train_timesteps", default.steps)),
        beta_start=float(config.get("beta_start", default.beta_start)),
        beta_end=float(config.get("beta_end", default.beta_end)),
        kind=config.get("beta_schedule", default.kind),
        zero_terminal_snr=bool(config.get("rescale_betas_zero_snr", False)),
    )
    prediction = _PREDICTIONS[word]
    if prediction == "velocity":
        return dataclasses.replace(facts, prediction=prediction, path="rectified", schedule=schedule)
    return dataclasses.replace(facts, prediction=prediction, schedule=schedule)


def _resolve_file(file: Path, architecture: Architecture, *, has_vae: bool) -> Weights:
    if file.suffix not in (".safetensors", *weight_files.PICKLES):
        raise UserError(
            "is not a weight file", where=str(file), remedy="give a .safetensors file or a diffusers folder"
        )
    header = weight_files.read_header(file)
    found = traits.of_shapes(header.shapes)
    if not traits.belongs(found, architecture.facts):
        raise _wrong_family(file, found, architecture.facts)
    single_file_facts.check_complete(header, architecture, file, has_vae=has_vae)
    beside = single_file_facts.configs_beside(file)
    folder = beside if beside.is_dir() else architecture.configs
    refined = single_file_facts.refine(refine(architecture.facts, folder), architecture, file, header)
    content = of_json([weight_files.digest_of([file]), refined.prediction, _small_files(folder)])
    return Weights("single_file", folder, file, refined, content, file.stem)


def _with_vae(found: Weights, place: Path) -> Weights:
    """Use another VAE: a folder (of a VAE, or of a model that has one) or a single file."""
    if place.is_dir():
        inside = place / "vae" if (place / "vae").is_dir() else place
        files = weight_paths(inside)
        if not (inside / "config.json").is_file() or not files:
            raise UserError("holds no VAE", where=str(place), remedy="it needs config.json and a .safetensors file")
        extra = weight_files.digest_of(files)
    else:
        inside = place
        extra = weight_files.digest_of([place])
    return dataclasses.replace(found, vae=inside, digest=of_json([found.digest, extra]))


def _wrong_family(place: Path, found: traits.Traits, facts: Facts) -> UserError:
    return UserError(
        f"this is {traits.describe(found)}, not {facts.title}",
        where=str(place),
        remedy="set [model] family to the family of the weights, or give other weights",
    )
