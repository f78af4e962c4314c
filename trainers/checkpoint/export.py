"""Exports: LoRA files and whole models in the layouts that other programs read, each reloaded and compared at once.

A LoRA is compared by what it does, module by module: the weight change alpha / rank * B A (and the DoRA magnitude) read
back from the file must equal the live one within the rounding of the file's precision.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainers.core.atomic import fsync_folder, move, replacing
from trainers.core.errors import UserError
from trainers.core.family import Family, Weights

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_NEGLIGIBLE = 1e-3  # changes this much smaller than the largest may lose digits to the file's smallest number
_TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}


@dataclass(frozen=True)
class Exported:
    """One verified export: where it lies, its layout, how many tensors, and the largest relative difference found."""

    path: Path
    layout: str
    tensors: int
    difference: float
    bytes: int

    def sentence(self) -> str:
        """The result in one line for people."""
        found = f"largest difference {self.difference:.1e}"
        return f"{self.path.name} ({self.layout}): {self.tensors} tensors reloaded, {found}"


def export_lora(
    family: Family, state: Mapping[str, Tensor], layout: str, path: Path, precision: str, metadata: Mapping[str, str]
) -> Exported:
    """Write a LoRA in one layout, then read it back and compare it with `state` (canonical names, float32)."""
    published = family.to_published(state, layout)
    write_safetensors(path, published, precision, metadata)
    difference = verify_lora(family, state, path, precision)
    return Exported(path, layout, len(published), difference, path.stat().st_size)


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], precision: str, metadata: Mapping[str, str]) -> None:
    """Write tensors in the given precision, whole or not at all, readable by everyone whom the umask allows."""
    cast = {name: tensor.detach().to("cpu", DTYPES[precision]).contiguous() for name, tensor in tensors.items()}
    broken = [name for name, tensor in cast.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise UserError(
            f"{len(broken)} tensors are not finite in {precision}, first {broken[0]}; nothing was written",
            where=str(path),
            remedy='set export.precision = "bf16" or "fp32"',
        )  # fmt: skip
    digest = hashlib.sha256()
    for name in sorted(cast):
        digest.update(name.encode())
        digest.update(cast[name].reshape(-1).view(torch.uint8).numpy().tobytes())
    text = {key: str(value) for key, value in metadata.items() if value not in (None, "")}
    text["sshs_model_hash"] = digest.hexdigest()
    with replacing(path) as temporary:
        save_file(cast, temporary, metadata={"format": "pt", **text})
        apply_umask(temporary)


def apply_umask(path: Path) -> None:
    """Give a file the permissions an ordinary `open` would have given; safetensors writes 0600."""
    mask = os.umask(0)
    os.umask(mask)
    with suppress(OSError):  # FAT and some network file systems have no permissions
        path.chmod(0o666 & ~mask)


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a whole file and its metadata."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})


def verify_lora(family: Family, state: Mapping[str, Tensor], path: Path, precision: str) -> float:
    """Compare a written LoRA with the live one; give the largest relative difference, raise when it is too large."""
    tensors, _ = read_safetensors(path)
    loaded = family.from_published(tensors)
    wanted, got = weight_changes(state), weight_changes(loaded)
    if wanted.keys() != got.keys():
        missing = sorted(wanted.keys() - got.keys()) or sorted(got.keys() - wanted.keys())
        raise UserError(
            f"the file does not hold the same layers, first difference {missing[0]}", where=str(path), remedy=_REPORT
        )
    worst, where = 0.0, ""
    tops = {name: float(change.abs().max()) for name, change in wanted.items()}
    floor = _NEGLIGIBLE * max(tops.values(), default=1.0)
    for name, change in wanted.items():
        scale = max(tops[name], floor) or 1.0
        difference = float((got[name] - change).abs().max()) / scale
        if difference > worst:
            worst, where = difference, name
    if worst > _TOLERANCE[precision]:
        raise UserError(
            f"reloaded, {where} differs from the trained one by {worst:.2e}", where=str(path), remedy=_REPORT
        )
    return worst


_REPORT = "the checkpoint is unharmed; please report this with the file's name and the preset"


def weight_changes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Canonical LoRA state -> per module its change alpha / rank * B A [out, in * k * k]; DoRA magnitudes by name."""
    changes: dict[str, Tensor] = {}
    for name, down in state.items():
        if name.endswith(".lora_A.weight"):
            base = name.removesuffix(".lora_A.weight")
            up = state[f"{base}.lora_B.weight"].float()
            rank = down.shape[0]
            alpha = float(state[f"{base}.alpha"]) if f"{base}.alpha" in state else float(rank)
            changes[base] = alpha / rank * (up.reshape(up.shape[0], rank) @ down.float().reshape(rank, -1))
        elif name.endswith(".dora_scale"):
            changes[name] = down.float().reshape(-1)
    return changes


def export_folder(pipeline: Any, path: Path, precision: str) -> Exported:
    """Save a diffusers pipeline folder beside its place, compare each weight file with the live parts, then rename."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(staging, ignore_errors=True)
    live = {name: part for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}
    pipeline.save_pretrained(staging, safe_serialization=True)
    count, worst, size = 0, 0.0, 0
    for name, part in live.items():
        wanted = part.state_dict()
        for file in sorted((staging / name).glob("*.safetensors")):
            tensors, difference = _settle(file, wanted, precision)
            count, worst, size = count + tensors, max(worst, difference), size + file.stat().st_size
    if path.exists():
        shutil.rmtree(path)
    move(staging, path)
    fsync_folder(path.parent)
    return Exported(path, "diffusers", count, worst, size)


def _settle(file: Path, wanted: Mapping[str, Tensor], precision: str) -> tuple[int, float]:
    """Give a weight file its precision and permissions; return its number of tensors and the largest difference.

    The library maps a file it reads; copies are made before it is written over, and nothing is mapped on return, for
    Windows renames no folder with a mapped file in it.
    """
    tensors, metadata = read_safetensors(file)
    if DTYPES[precision] != next(iter(tensors.values())).dtype:
        tensors = {
            key: value.to(DTYPES[precision]) if value.is_floating_point() else value.clone()
            for key, value in tensors.items()
        }
        save_file(tensors, file, metadata=metadata or {"format": "pt"})
    apply_umask(file)
    return len(tensors), _compare(wanted, tensors, file, precision)


def export_single_file(
    family: Family,
    weights: Weights,
    state: Mapping[str, Tensor],
    path: Path,
    precision: str,
    metadata: Mapping[str, str],
) -> Exported:
    """Write a whole model (canonical names, all parts) as one file in the original layout, and compare it on reload.

    The file carries markers of what it predicts; configs lie beside it where its shapes are not the family's.
    """
    tensors = {**family.to_published(state, "single_file"), **family.markers(weights)}
    write_safetensors(path, tensors, precision, metadata)
    family.write_configs(weights, path)
    written, header = read_safetensors(path)
    worst = _compare(family.from_published(written, header), state, path, precision)
    return Exported(path, "single_file", len(written), worst, path.stat().st_size)


def _compare(wanted: Mapping[str, Tensor], got: Mapping[str, Tensor], path: Path, precision: str) -> float:
    """Largest relative difference over `got`; raises for a name that `wanted` lacks or a difference too large."""
    worst = 0.0
    for name, tensor in got.items():
        if name not in wanted:
            raise UserError(f"{name} was written but is not part of the model", where=str(path), remedy=_REPORT)
        other = wanted[name].detach().to("cpu", torch.float32)
        scale = float(other.abs().max()) or 1.0
        worst = max(worst, float((tensor.detach().to("cpu", torch.float32) - other).abs().max()) / scale)
    if worst > _TOLERANCE[precision]:
        raise UserError(f"reloaded, the model differs by {worst:.2e}", where=str(path), remedy=_REPORT)
    return worst


@dataclass(frozen=True)
class LoraCard:
    """What the header of a LoRA file tells about it."""

    base: str
    architecture: str
    title: str
    rank: int
    alpha: float
    precision: str
    trigger: str
    preset_digest: str
    extra: Mapping[str, str]

    def metadata(self) -> dict[str, str]:
        """The header in the keys that ComfyUI, A1111 and the modelspec read, and in our own."""
        ours = {
            "base": self.base,
            "rank": str(self.rank),
            "alpha": f"{self.alpha:g}",
            "precision": self.precision,
            "trigger": self.trigger,
            "preset": self.preset_digest,
            **self.extra,
        }
        return {
            "modelspec.sai_model_spec": "1.0.1",
            "modelspec.architecture": f"{self.architecture}/lora",
            "modelspec.implementation": "diffusers",
            "modelspec.title": self.title,
            "modelspec.trigger_phrase": self.trigger,
            "ss_network_module": "networks.lora",
            "ss_network_dim": str(self.rank),
            "ss_network_alpha": f"{self.alpha:g}",
            "ss_sd_model_name": self.base,
            **{f"trainers.{key}": value for key, value in ours.items()},
        }
