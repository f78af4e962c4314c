"""Nested state (dicts, lists, tensors, numbers) on the disk, bit for bit, without pickle.

`NAME.json` holds the tree, `NAME.safetensors` the tensors it refers to. What JSON has no word for is tagged:
`{"$tensor": key}`, `{"$float": "nan"}`, `{"$tuple": [...]}`, `{"$dict": [[key, value], ...]}` (keys that are no plain
strings). Tensors that are dense but not row-major (channels-last) get their strides back: optimizers step over the raw
memory of weight and state together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


def write_state(folder: Path, name: str, state: Any) -> None:
    """Write `state` as `folder/name.json` and `folder/name.safetensors`. Raises TypeError for what it cannot hold."""
    packer = _Packer()
    tree = packer.pack(state, name)
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    save_tensors(folder / f"{name}.safetensors", packer.tensors)


def read_state(folder: Path, name: str) -> Any:
    """Read back what `write_state` wrote: equal values, types, dtypes, shapes and strides; tensors on the CPU."""
    tree = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return _unpack(tree, load_file(folder / f"{name}.safetensors"))


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file that others may read as the umask says (the library makes it private to its owner)."""
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, metadata=metadata)
    with suppress(OSError):  # FAT and some network file systems have no permissions
        path.chmod(mode)


class _Packer:
    """Turns values into JSON and puts their tensors aside under their path in the tree."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._addresses: set[int] = set()

    def pack(self, value: Any, path: str) -> Any:
        """The JSON form of `value`."""
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):  # JSON keeps every bit of a finite double
            return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, (list, tuple)):
            items = [self.pack(item, f"{path}/{number}") for number, item in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, Mapping):
            pairs = [(key, self.pack(item, f"{path}/{key}")) for key, item in value.items()]
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return dict(pairs)
            return {"$dict": [[self.pack(key, path), item] for key, item in pairs]}
        raise TypeError(f"{path}: a checkpoint cannot hold a {type(value).__name__}")

    def _tensor(self, value: Tensor, path: str) -> dict[str, Any]:
        while path in self.tensors:  # the keys 1 and "1" look alike in a path
            path += "'"
        tag: dict[str, Any] = {"$tensor": path}
        if not value.is_contiguous() and _is_dense(value):
            tag["strides"] = list(value.stride())
        plain = value.detach().cpu().contiguous()
        if plain.untyped_storage().nbytes() != plain.nbytes or plain.data_ptr() in self._addresses:
            plain = plain.clone()  # a view or a tied weight: each name gets its own bytes
        self._addresses.add(plain.data_ptr())
        self.tensors[path] = plain
        return tag


def _unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `_Packer.pack`."""
    if isinstance(tree, list):
        return [_unpack(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$tensor" in tree:
        tensor = tensors[tree["$tensor"]]
        if "strides" not in tree:
            return tensor.clone()  # the library maps the file; a map would keep the file in use
        return torch.empty_strided(tensor.shape, tree["strides"], dtype=tensor.dtype).copy_(tensor)
    if "$float" in tree:
        return float(tree["$float"])
    if "$tuple" in tree:
        return tuple(_unpack(item, tensors) for item in tree["$tuple"])
    if "$dict" in tree:
        return {_unpack(key, tensors): _unpack(item, tensors) for key, item in tree["$dict"]}
    return {key: _unpack(item, tensors) for key, item in tree.items()}


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one block of memory in some order of the axes."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
