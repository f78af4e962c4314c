"""Reading weight files: headers without torch, tensors safely, and a digest that names the content."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.core import digest
from trainers.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

PICKLES = (".ckpt", ".pt", ".pth", ".bin")
_LARGEST_HEADER = 100_000_000
_SAMPLE = 256


@dataclass(frozen=True)
class Header:
    """What a weight file says without its numbers: shapes by tensor name, and free text metadata."""

    shapes: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, str]


def read_header(path: Path) -> Header:
    """Read names, shapes and metadata of a weight file; of a safetensors file only its first bytes."""
    if path.suffix in PICKLES:
        return Header({name: tuple(tensor.shape) for name, tensor in _read_pickle(path).items()}, {})
    table, _ = _safetensors_table(path)
    metadata = {str(key): str(value) for key, value in table.pop("__metadata__", {}).items()}
    return Header({name: tuple(entry["shape"]) for name, entry in table.items()}, metadata)


def read_tensors(path: Path, wanted: Callable[[str], bool] | None = None) -> dict[str, Tensor]:
    """Read the tensors whose name is wanted (all without `wanted`), on the CPU, in the type of the file."""
    wanted = wanted or bool
    if path.suffix in PICKLES:
        return {name: tensor for name, tensor in _read_pickle(path).items() if wanted(name)}
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in list(file.keys()) if wanted(name)}


def read_numbers(path: Path, name: str) -> list[float]:
    """Read one small tensor of a weight file as plain numbers, of a safetensors file without torch."""
    if path.suffix in PICKLES:
        return [float(number) for number in _read_pickle(path)[name].flatten().tolist()]
    table, start = _safetensors_table(path)
    first, last = table[name]["data_offsets"]
    with open(path, "rb") as file:
        file.seek(start + first)
        data = file.read(last - first)
    kind = table[name]["dtype"]
    if kind == "BF16":  # the upper half of a float32
        data = b"".join(b"\0\0" + data[place : place + 2] for place in range(0, len(data), 2))
        kind = "F32"
    letter = {"F16": "e", "F32": "f", "F64": "d"}[kind]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data))


def digest_of(paths: Iterable[Path]) -> str:
    """Name the content of weight files: header, and three samples of every tensor.

    Training changes a tensor everywhere, so samples tell two models apart as all bytes would, in far less time.
    """
    return digest.of_json([_digest_of_one(path) for path in paths])


def _digest_of_one(path: Path) -> str:
    if path.suffix != ".safetensors":
        return digest.of_file(path)
    table, start = _safetensors_table(path)
    state = hashlib.blake2b(json.dumps(table, sort_keys=True).encode(), digest_size=16)
    with open(path, "rb") as file:
        for name in sorted(key for key in table if key != "__metadata__"):
            first, last = table[name]["data_offsets"]
            for offset in (first, (first + last) // 2, max(first, last - _SAMPLE)):
                file.seek(start + offset)
                state.update(file.read(min(_SAMPLE, last - offset)))
    return state.hexdigest()


def _safetensors_table(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file and where its data start."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= _LARGEST_HEADER:
                raise ValueError("no safetensors header")
            table = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in table.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = "this is not a safetensors file"
        raise UserError(what, where=str(path), remedy="download it again; perhaps a web page was saved") from error
    size, needed = path.stat().st_size, 8 + length + max(ends, default=0)
    if size < needed:
        raise UserError(f"the file is cut short: {size} of {needed} bytes", where=str(path), remedy="download it again")
    return table, 8 + length


def _read_pickle(path: Path) -> dict[str, Tensor]:
    """Read a pickled checkpoint with torch's safe reader, which runs no code from the file."""
    import pickle

    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise UserError(
            "this pickled file can't be read without running code from it, which is refused",
            where=str(path),
            remedy="use the .safetensors file of the same model, or convert it on a machine you don't mind losing",
        ) from error
    content = content.get("state_dict", content) if isinstance(content, dict) else {}
    return {str(name): tensor for name, tensor in content.items() if isinstance(tensor, torch.Tensor)}
