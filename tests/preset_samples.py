"""Valid presets for tests: a smallest one, and values for every field of the schema, by example or drawn."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from trainers.presets import edit, schema
from trainers.presets.schema import Entry, Json

SMALLEST: dict[str, Any] = {
    "version": 1,
    "run": {"name": "test", "length": "40 steps"},
    "model": {"family": "sd15"},
    "train": {"kind": "lora"},
    "optimizer": {"kind": "adamw"},
    "data": {"concepts": [{"folder": "pictures"}], "batch": 64},
}

TEXTS: dict[str, list[str]] = {
    "version": [],
    "run.name": ["red-chair", "猫 ü"],
    "run.length": ["2000 steps", "50k samples", "10 epochs"],
    "model.family": ["sd15", "sdxl"],
    "schedule.warmup": ["5 %", "10 steps"],
    "compute.device": ["cpu", "cuda:1"],
    "compute.memory_limit": ["12 GB", "23.5 GiB"],
    "preview.every": ["never", "10 %"],
    "validation.every": ["never", "1 epoch"],
    "checkpoint.every": ["never", "100 steps"],
    "data.area": ["512px", "1.0 MP"],
    "data.background": ["black", "#102030"],
    "data.concepts[].template": ["a photo of a thing"],
    "train.targets": ["attention", "all"],
    "optimizer.path": ["torch.optim.SGD"],
}
"""Texts with a form of their own; all others take any word."""

WORDS = ["word", 'say "no"', "C:\\my data\\ü 猫", "a # b", "it's", "two\nlines"]

NEEDS: dict[str, dict[str, Any]] = {
    "schedule.cycles": {"schedule.kind": "cosine"},
    "schedule.power": {"schedule.kind": "polynomial"},
    "schedule.floor": {"schedule.kind": "linear"},
    "data.keep_tags": {"data.shuffle_tags": True},
    "data.crop_variants": {"data.crop": "random"},
    "data.prior_weight": {"data.concepts.1": {"folder": "more", "role": "class"}},
    "data.concepts[].role": {"data.concepts.1": {"folder": "more"}},
    "data.concepts[].generate": {
        "data.concepts.1": {"folder": "more"},
        "data.concepts.0.role": "class",
        "data.concepts.0.prompt": "a",
    },
    "data.concepts[].prompt": {"data.concepts.1": {"folder": "more"}, "data.concepts.0.role": "class"},
    "data.concepts[].mask_folder": {"data.concepts.0.mask": "files"},
    "data.concepts[].captions": {"data.concepts.0.template": "a photo"},
    "data.concepts[].missing_caption": {"data.concepts.0.class_word": "cat", "data.concepts.0.trigger": "zwx"},
    "objective.gamma": {"objective.weighting": "min_snr"},
    "objective.huber_c": {"objective.loss": "huber"},
    "objective.huber_schedule": {"objective.loss": "huber"},
    "objective.pyramid_discount": {"objective.pyramid_noise": True},
    "objective.time.mean": {"objective.time.kind": "logit_normal"},
    "objective.time.std": {"objective.time.kind": "logit_normal"},
    "objective.time.scale": {"objective.time.kind": "mode"},
    "objective.time.a": {"objective.time.kind": "beta"},
    "objective.time.b": {"objective.time.kind": "beta"},
    "train.conv_alpha": {"train.conv_rank": 4},
    "validation.times": {"data.validation_share": 0.1},
    "validation.every": {"data.validation_share": 0.1},
}
"""What else must be set for a key to have an effect."""


def leaves() -> list[Entry]:
    """Every key that holds a value, of every kind of table."""
    return [
        entry for entry in schema.entries() if not entry.is_table and entry.name != "kind" and entry.path != "version"
    ]


def values_with(entry: Entry, value: Any) -> dict[str, Any]:
    """Return the smallest preset in which `entry` has this value and an effect."""
    values = copy.deepcopy(SMALLEST)
    if entry.kinds:
        top = entry.path.split(".")[0]
        values[top] = {"kind": entry.kinds[0]}
        if entry.kinds[0] == "custom":
            values[top]["path"] = "torch.optim.SGD"
    for path, needed in NEEDS.get(entry.path, {}).items():
        edit.set_value(values, path, copy.deepcopy(needed))
    edit.set_value(values, entry.path.replace("[]", ".0"), value)
    return values


def drawn(path: str, node: Json) -> st.SearchStrategy[Any]:
    """Draw values that a field of the schema may have."""
    node = schema.deref(node)
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    if choices:
        return st.one_of([drawn(path, {**_without(node), **choice}) for choice in choices])
    if "const" in node or "enum" in node:
        return st.sampled_from(node.get("enum") or [node["const"]])
    kind = node.get("type", "")
    if kind in ("integer", "number"):
        return _numbers(node, whole=kind == "integer")
    if kind == "boolean":
        return st.booleans()
    if kind == "array":
        return _lists(path, node)
    if kind == "object":
        inner = node.get("additionalProperties")
        each = drawn(path, inner) if isinstance(inner, dict) else st.integers(0, 3)
        return st.dictionaries(st.sampled_from(["denoiser", "*.attn1.*", 'odd "name"']), each, max_size=2)
    return st.sampled_from(TEXTS.get(path) or node.get("examples") or WORDS)


def _without(node: Json) -> Json:
    return {key: value for key, value in node.items() if key in ("examples",)}


def _lists(path: str, node: Json) -> st.SearchStrategy[list[Any]]:
    if path == "train.parts":
        return st.just(["denoiser", "text_encoder"])
    if path == "export.layouts":
        return st.just(["diffusers"])
    if "prefixItems" in node:
        return st.tuples(*(drawn(path, item) for item in node["prefixItems"])).map(list)
    if path == "preview.size":
        return st.just([512, 768])
    item = drawn(path, {key: value for key, value in node["items"].items() if key != "examples"})
    return st.lists(item, min_size=node.get("minItems", 0), max_size=node.get("maxItems", 3))


def _numbers(node: Json, *, whole: bool) -> st.SearchStrategy[Any]:
    low = node.get("minimum", node.get("exclusiveMinimum", -1000))
    high = node.get("maximum", node.get("exclusiveMaximum", max(low, 0) + 1000))
    if whole:
        return st.integers(low + ("exclusiveMinimum" in node), min(high - ("exclusiveMaximum" in node), low + 60))
    return st.floats(
        low, high, allow_nan=False, exclude_min="exclusiveMinimum" in node, exclude_max="exclusiveMaximum" in node
    )
