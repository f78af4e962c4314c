"""A store of tensors by key: entries are whole or absent, any number of processes may share it, and all of it may go.

One safetensors file an entry, in folders by the first two letters of its key. An entry carries a digest of its numbers:
entries are not flushed to the disk one by one (that would cost more than encoding), so after a power cut one may hold
zeros under its right name. What fails the test is removed and made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from trainers.core import digest
from trainers.core.atomic import patiently, write_bytes

_CHECK = "digest"
_LENGTH_BYTES = 8  # a safetensors file: length of the header, header in JSON, numbers


class Cache:
    """Tensors by key in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where the entry of `key` lies, whether it is there or not."""
        return self.folder / key[:2] / f"{key}.safetensors"

    def get(self, key: str) -> dict[str, Tensor] | None:
        """Return an entry; None when there is none, or when it was damaged (it is removed then)."""
        path = self.path(key)
        try:
            data = patiently(path.read_bytes)
        except FileNotFoundError:
            return None
        try:
            header, numbers = _split(data)
            if header["__metadata__"][_CHECK] == digest.of_bytes(numbers):
                return load(data)
        except (SafetensorError, ValueError, KeyError, TypeError):
            pass  # not a whole safetensors file: damaged, like one whose digest differs
        path.unlink(missing_ok=True)
        return None

    def put(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        """Write an entry, whole or not at all. Two processes that write the same key write the same bytes."""
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        _, numbers = _split(save(plain))
        write_bytes(self.path(key), save(plain, {_CHECK: digest.of_bytes(numbers)}), durable=False)


def _split(data: bytes) -> tuple[dict[str, dict[str, str]], bytes]:
    """Take the bytes of a safetensors file apart: (header, numbers)."""
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    return json.loads(data[_LENGTH_BYTES:start]), data[start:]
