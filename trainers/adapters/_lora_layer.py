"""A lean LoRA (or DoRA) around one linear layer or convolution; the same arithmetic as PEFT's layers.

PEFT's own layers are not used because their dropout reads the global generator (see `_dropout`) and because they cast
the layer's input up to float32, where these cast the two small matrices down to the layer's compute type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ._dropout import keyed_dropout

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


@dataclass
class Shared:
    """What all layers of one adapter share: on or off, the share of dropout, the words of the present micro-batch."""

    enabled: bool = True
    dropout: float = 0.0
    words: Tensor | None = None


class LoraLayer(nn.Module, ABC):
    """`base_layer(x) + factor * B(A(x))`, base frozen; A [r, in(, *kernel)], B [out, r(, 1, 1)], float32.

    With DoRA (`dora_scale` [out]) each row of W + factor * BA is rescaled to the length `dora_scale`.
    """

    axis: int
    """The axis of the output that counts output features."""

    def __init__(
        self, base: nn.Linear | Conv, start: Tensor, factor: float, index: int, shared: Shared, dora: bool
    ) -> None:
        """`start` is the first value of A; B starts at zero. `index` numbers the layers of the adapter."""
        super().__init__()
        weight = base.weight.detach()
        self.base_layer = base
        self.factor = factor
        self.rank = start.shape[0]
        self._index = index
        self._shared = shared
        narrow = (weight.shape[0], self.rank, *(1 for _ in weight.shape[2:]))
        self.lora_A = nn.Parameter(start.to(weight.device, torch.float32))
        self.lora_B = nn.Parameter(torch.zeros(narrow, device=weight.device))
        self.dora_scale = nn.Parameter(_row_norms(weight.float())) if dora else None
        self.train(base.training)

    @property
    def weight(self) -> Tensor:
        """The base's weight, for code that asks a layer for its type or device."""
        return self.base_layer.weight

    @property
    def bias(self) -> Tensor | None:
        """The base's bias."""
        return self.base_layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """x [B, ..., in] or [B, in, *space] -> what the base returns, changed by the adapter."""
        out: Tensor = self.base_layer(x)
        if not self._shared.enabled:
            return out
        drops = self.training and self._shared.dropout > 0.0
        seen = self._dropped(x) if drops else x
        if self.dora_scale is None:
            return self._added(out, seen)
        plain = self._base_map(seen, self.base_layer.weight) if drops else self._without_bias(out)
        return self._rescaled(out, plain, self._update(seen), self.dora_scale)

    def delta(self) -> Tensor:
        """Return the learned change of the base's weight, factor * B A (float32), before any DoRA rescaling."""
        change = self.lora_B.detach().flatten(1).float() @ self.lora_A.detach().flatten(1).float()
        return (change * self.factor).view(self.base_layer.weight.shape)

    def merged_weight(self) -> Tensor:
        """Return the weight (float32) of a plain layer that acts like this one."""
        merged = self.base_layer.weight.detach().float() + self.delta()
        if self.dora_scale is None:
            return merged
        gain = self.dora_scale.detach() / _row_norms(merged)
        return merged * gain.view(-1, *(1 for _ in merged.shape[1:]))

    def _dropped(self, x: Tensor) -> Tensor:
        if self._shared.words is None:
            raise RuntimeError("LoRA dropout needs set_draw(keys) before the forward of each micro-batch")
        return keyed_dropout(x, self._shared.words[self._index], self._shared.dropout)

    def _added(self, out: Tensor, x: Tensor) -> Tensor:
        """out + factor * B A x."""
        return out + self._update(x).to(out.dtype)

    def _update(self, x: Tensor) -> Tensor:
        """factor * B A x, computed in x's type; the factor meets the narrow tensor, where it costs least."""
        low = self._base_map(x, self.lora_A.to(x.dtype))
        if self.factor != 1.0:
            low = low * self.factor
        return self._widen(low, self.lora_B.to(low.dtype))

    def _rescaled(self, out: Tensor, plain: Tensor, update: Tensor, magnitude: Tensor) -> Tensor:
        """Add what DoRA changes: `plain` is W x. The norm counts as a constant (section 4.3 of the paper)."""
        with torch.no_grad():
            norms = _row_norms(self.base_layer.weight.detach().float() + self.delta())
        gain = self._per_output(magnitude / norms, out)
        return (out + (gain - 1.0) * plain + gain * update).to(out.dtype)

    def _without_bias(self, out: Tensor) -> Tensor:
        bias = self.base_layer.bias
        return out if bias is None else out - self._per_output(bias, out)

    def _per_output(self, values: Tensor, out: Tensor) -> Tensor:
        """Shape [out] values so that they broadcast over `out`."""
        shape = [1] * out.ndim
        shape[self.axis] = -1
        return values.view(shape)

    @abstractmethod
    def _base_map(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply the base's kind of map, without bias, with another weight [n, in(, *kernel)]."""

    @abstractmethod
    def _widen(self, low: Tensor, weight: Tensor) -> Tensor:
        """Map r features to out features at each place."""


class LoraLinear(LoraLayer):
    """LoRA around nn.Linear."""

    base_layer: nn.Linear
    axis = -1

    @property
    def in_features(self) -> int:
        """Width of the input."""
        return self.base_layer.in_features

    @property
    def out_features(self) -> int:
        """Width of the output."""
        return self.base_layer.out_features

    def _added(self, out: Tensor, x: Tensor) -> Tensor:
        """out + factor * B A x with product, factor and sum in one kernel: one pass less over the wide output."""
        low = functional.linear(x, self.lora_A.to(x.dtype)).to(out.dtype)
        wide = self.lora_B.to(out.dtype).t()
        flat = torch.addmm(out.reshape(-1, out.shape[-1]), low.reshape(-1, self.rank), wide, alpha=self.factor)
        return flat.view(out.shape)

    def _base_map(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(x, weight)

    def _widen(self, low: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(low, weight)


class LoraConv(LoraLayer):
    """LoRA around a convolution: A has the base's kernel and geometry, B is 1x1."""

    base_layer: Conv
    axis = 1

    def _base_map(self, x: Tensor, weight: Tensor) -> Tensor:
        base = self.base_layer
        convolve = _CONVOLVE[weight.ndim - 2]
        return convolve(x, weight, None, base.stride, base.padding, base.dilation)

    def _widen(self, low: Tensor, weight: Tensor) -> Tensor:
        return _CONVOLVE[weight.ndim - 2](low, weight)


def make_layer(base: nn.Module, start: Tensor, factor: float, index: int, shared: Shared, dora: bool) -> LoraLayer:
    """Wrap a linear layer or convolution."""
    if isinstance(base, nn.Linear):
        return LoraLinear(base, start, factor, index, shared, dora)
    if isinstance(base, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return LoraConv(base, start, factor, index, shared, dora)
    raise TypeError(f"no LoRA for a layer of class {type(base).__name__}")


def _row_norms(weight: Tensor) -> Tensor:
    """Length of the weights of each output: [out, ...] -> [out]."""
    return torch.linalg.vector_norm(weight.flatten(1), dim=1)
