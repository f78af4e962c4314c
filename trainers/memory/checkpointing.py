"""Activation checkpointing: compute activations twice instead of keeping them. Chen et al. 2016, arXiv 1604.06174."""

from __future__ import annotations

from typing import Any

_SMALL_CARD = 20 * 1024**3
_LARGE_NETWORK = 400_000_000


def wants_checkpointing(wanted: bool | str, *, device_kind: str, device_bytes: int, parameters: int) -> bool:
    """Decide "auto": on where a large network meets a small card; on a CPU time is scarcer than memory."""
    if wanted != "auto":
        return bool(wanted)
    return device_kind != "cpu" and device_bytes < _SMALL_CARD and parameters > _LARGE_NETWORK


def checkpoint_activations(network: Any) -> None:
    """Recompute activations block by block, never in the re-entrant form that cuts the gradients of frozen inputs."""
    if hasattr(network, "enable_gradient_checkpointing"):
        network.enable_gradient_checkpointing()
    elif hasattr(network, "gradient_checkpointing_enable"):
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
