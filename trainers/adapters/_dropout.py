"""Dropout whose mask is a pure function of (sample key, layer, position): no generator, the same on every device.

torch's own dropout reads the global generator, so a resumed run, another micro-batch or another number of GPUs would
train on other masks. Here each number's fate is a hash of its position within the sample, made with integer arithmetic
on the device itself. The hash is the finaliser of MurmurHash3 with the key mixed in twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1, _MULTIPLY_2 = -2048144789, -1028477387  # 0x85ebca6b and 0xc2b2ae35 as signed 32-bit numbers


def layer_words(keys: Sequence[int], layers: int) -> Tensor:
    """Derive two words per layer and sample from B 64-bit `keys`: int32 [layers, B, 2]. SplitMix, Steele 2014."""
    samples = np.array([key & 0xFFFFFFFFFFFFFFFF for key in keys], dtype=np.uint64)
    offsets = np.arange(1, layers + 1, dtype=np.uint64) * _GOLDEN
    word = samples[None, :] ^ offsets[:, None]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    return torch.from_numpy(word.view(np.int32).reshape(layers, len(keys), 2).copy())


def _shift(value: Tensor, bits: int) -> Tensor:
    """Shift int32 right by `bits`, filling with zeros (torch's shift copies the sign)."""
    return (value >> bits).bitwise_and_((1 << (32 - bits)) - 1)


def dropped(words: Tensor, count: int, share: float) -> Tensor:
    """Say which of `count` numbers of each sample fall out: words int32 [B, 2] -> bool [B, count]."""
    mixed = torch.arange(count, dtype=torch.int32, device=words.device)[None] ^ words[:, :1]
    mixed = mixed.bitwise_xor_(_shift(mixed, 16)).mul_(_MULTIPLY_1)
    mixed.bitwise_xor_(words[:, 1:])
    mixed = mixed.bitwise_xor_(_shift(mixed, 13)).mul_(_MULTIPLY_2)
    mixed.bitwise_xor_(_shift(mixed, 16))
    return mixed < round(share * 2**32) - 2**31


def keyed_dropout(x: Tensor, words: Tensor, share: float) -> Tensor:
    """Set a `share` of x to zero and scale the rest by 1 / (1 - share); words int32 [B, 2].

    The first axis of x is the sample, or samples unfolded in order (B * frames, B * tokens). Where it is no multiple
    of B (an extra empty caption, say) the first sample's key serves for the whole tensor: still a function of keys.
    """
    words = words.to(x.device)
    if x.shape[0] % len(words):
        words = words[:1]
    mask = dropped(words, x.numel() // len(words), share).view(x.shape)
    return x.masked_fill(mask, 0.0) * (1.0 / (1.0 - share))
