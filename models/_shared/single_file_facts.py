"""What a single file says about itself, read from its header and from what lies beside it. Torch-free."""

from __future__ import annotations

import dataclasses
import re
import statistics
from pathlib import Path

from trainers.core.errors import Problem, UserError
from trainers.core.facts import Facts, NoiseSchedule, PredictionKind

from . import weight_files
from .architecture import Architecture
from .weight_files import Header

VAE_PREFIX = "first_stage_model."
_PARAMETERIZATION = re.compile(r"^\s*parameterization:\s*[\"']?(\w+)", re.MULTILINE)
_BASE_AREA = 512 * 512


def configs_beside(file: Path) -> Path:
    """Return where a file's own configs and tokenizers may lie: "NAME.configs" beside NAME.safetensors."""
    return file.with_name(file.stem + ".configs")


def check_complete(header: Header, architecture: Architecture, file: Path, *, has_vae: bool) -> None:
    """Refuse a file without text encoder, or without a VAE where none is given."""
    problems = []
    for part, form in architecture.texts.items():
        if not any(name.startswith(form.prefix) for name in header.shapes):
            problems.append(
                Problem(str(file), f"the file has no {part}", "use the full checkpoint, or a diffusers folder")
            )
    if not has_vae and not any(name.startswith(VAE_PREFIX) for name in header.shapes):
        problems.append(Problem(str(file), "the file has no VAE", "name one: [model] vae = ..."))
    if problems:
        raise UserError(problems)


def refine(facts: Facts, architecture: Architecture, file: Path, header: Header) -> Facts:
    """Set prediction kind and zero terminal SNR by what the file says.

    In this order: a .yaml beside it ("parameterization"), marker tensors "v_pred" and "ztsnr", modelspec metadata, and
    for SD 2 without any of these the spread of one bias, by which other programs tell its v from its eps models too.
    """
    prediction = _stated_prediction(file, header)
    if prediction is None and architecture.telltale in header.shapes and not configs_beside(file).is_dir():
        spread = statistics.pstdev(weight_files.read_numbers(file, architecture.telltale))
        prediction = "v" if spread > architecture.threshold else "eps"
    if prediction is not None:
        area = _BASE_AREA if architecture.telltale and prediction == "eps" else facts.native_area
        facts = dataclasses.replace(facts, prediction=prediction, native_area=min(area, facts.native_area))
    if "ztsnr" in header.shapes:
        schedule = dataclasses.replace(facts.schedule or NoiseSchedule(), zero_terminal_snr=True)
        facts = dataclasses.replace(facts, schedule=schedule)
    return facts


def _stated_prediction(file: Path, header: Header) -> PredictionKind | None:
    beside = file.with_suffix(".yaml")
    if beside.is_file():
        match = _PARAMETERIZATION.search(beside.read_text("utf-8"))
        return "v" if match and match[1] == "v" else "eps"
    if "v_pred" in header.shapes:
        return "v"
    words: dict[str, PredictionKind] = {"epsilon": "eps", "v": "v", "v_prediction": "v"}
    return words.get(header.metadata.get("modelspec.prediction_type", ""))
