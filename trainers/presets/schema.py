"""The schema of a preset as data: for forms, for `explain`, and for errors that know what would have been right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .preset import Preset

Json = dict[str, Any]


@lru_cache(maxsize=1)
def json_schema() -> Json:
    """Return the JSON schema of a preset, with `unit` and `advanced` beside each field's help, bounds and default."""
    return Preset.model_json_schema()


@dataclass(frozen=True)
class Entry:
    """One key or table of the schema. `path` has "[]" for entries of lists: "data.concepts[].folder".

    `kinds` tells with which `kind` of its table the key exists; empty: with any.
    """

    path: str
    kinds: tuple[str, ...]
    node: Json
    required: bool

    @property
    def name(self) -> str:
        """The key itself."""
        return self.path.rpartition(".")[2]

    @property
    def table(self) -> str:
        """The table it stands in, as a dotted path; "" at the top."""
        return self.path.rpartition(".")[0]

    @property
    def help(self) -> str:
        """What the key does, for people."""
        return str(deref(self.node).get("description", ""))

    @property
    def unit(self) -> str:
        """What its number counts, or ""."""
        return str(self.node.get("unit", ""))

    @property
    def is_table(self) -> bool:
        """Whether it holds keys of its own."""
        return bool(tables(self.node))


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """List every key and table of a preset, parents first."""
    return tuple(_walk("", (), json_schema()))


def _walk(prefix: str, kinds: tuple[str, ...], table: Json) -> Iterator[Entry]:
    for name, node in table.get("properties", {}).items():
        path = f"{prefix}.{name}" if prefix else name
        yield Entry(path, kinds, node, name in table.get("required", ()))
        for mark, kind, inner in tables(node):
            yield from _walk(path + mark, (*kinds, kind) if kind else kinds, inner)


def tables(node: Json) -> list[tuple[str, str, Json]]:
    """Return the tables a node may be, as (mark, kind, table): mark "[]" for a list, kind "" for the only form."""
    node = deref(node)
    if "properties" in node:
        return [("", "", node)]
    if "items" in node:
        return [("[]" + mark, kind, table) for mark, kind, table in tables(node["items"])]
    if "discriminator" in node:
        mapping: dict[str, str] = node["discriminator"]["mapping"]
        return [("", kind, deref({"$ref": ref})) for kind, ref in mapping.items()]
    found = [table for choice in node.get("anyOf", ()) for table in tables(choice)]
    return [table for number, table in enumerate(found) if table not in found[:number]]


def deref(node: Json) -> Json:
    """Follow a reference inside the schema; keys beside it (help, default) win."""
    if "$ref" not in node:
        return node
    name = node["$ref"].rpartition("/")[2]
    return {**json_schema()["$defs"][name], **{key: value for key, value in node.items() if key != "$ref"}}


def find(path: str, kind: str | None = None) -> tuple[Entry, ...]:
    """Return the entries at a dotted path: one per kind of table that has it. Positions in lists may be left out."""
    wanted = _without_positions(path)
    hits = [entry for entry in entries() if _without_positions(entry.path) == wanted]
    return tuple(entry for entry in hits if kind is None or not entry.kinds or kind in entry.kinds)


def _without_positions(path: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)|\[\]", "", path)


def kinds_of(table: str) -> tuple[str, ...]:
    """List the kinds a table can have: ("adamw", "lion", ...) for "optimizer", () for a plain one."""
    for entry in find(table):
        return tuple(kind for _, kind, _ in tables(entry.node) if kind)
    return ()


def describe(node: Json) -> str:
    """Say in words what a value may be: `a number above 0`, `"auto" or a whole number from 1 to 64`."""
    node = deref(node)
    if "anyOf" in node or "oneOf" in node:
        options: list[Json] = node.get("anyOf") or node["oneOf"]
        choices = [choice for choice in options if choice.get("type") != "null"]
        inherited = {key: node[key] for key in _BOUNDS if key in node}
        words = [describe({**inherited, **choice}) for choice in choices]
        return " or ".join(dict.fromkeys(words))
    if "enum" in node:
        return "one of " + ", ".join(quoted(value) for value in node["enum"])
    if "const" in node:
        return quoted(node["const"])
    return _describe_type(node)


_BOUNDS = {
    "exclusiveMinimum": "above {}",
    "minimum": "at least {}",
    "exclusiveMaximum": "below {}",
    "maximum": "at most {}",
}
_HUGE = 2**53  # limits of storage rather than of sense are not worth a word
_TYPES = {
    "string": "text in quotation marks",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def bounds(node: Json) -> str:
    """Say the limits of a number: "above 0 and at most 1"; "" where there are none."""
    node = deref(node)
    words = [text.format(quoted(node[key])) for key, text in _BOUNDS.items() if key in node and abs(node[key]) < _HUGE]
    inner = [bounds(choice) for choice in node.get("anyOf", ())]
    return " and ".join(words) or next((text for text in inner if text), "")


def _describe_type(node: Json) -> str:
    kind = node.get("type", "")
    if kind == "array":
        items = node.get("items", {})
        shortest, longest = node.get("minItems"), node.get("maxItems")
        if shortest is not None and shortest == longest:
            item: Json = items or next(iter(node.get("prefixItems", ())), {})
            return f"a list [ ] of {shortest} entries, each {describe(item)}"
        most = f" of at most {longest} entries" if longest is not None else ""
        return f"a list [ ]{most or (' that is not empty' if shortest else '')}, each entry {describe(items)}"
    if kind == "object":
        if "properties" in node:
            return "a table"
        each = node.get("additionalProperties")
        return "a table { name = value }" + (f", each value {describe(each)}" if isinstance(each, dict) else "")
    words = _TYPES.get(kind, "a value")
    limits = bounds(node)
    if kind == "string" and node.get("minLength"):
        return words + " that is not empty"
    return f"{words} {'of ' if limits.startswith('at') else ''}{limits}" if limits else words


def quoted(value: Any) -> str:
    """Write a value as it would stand in a preset."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        mark = "'" if '"' in value or "\\" in value else '"'
        return f"{mark}{value}{mark}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(quoted(entry) for entry in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {quoted(entry)}" for key, entry in value.items()) + " }" if value else "{}"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
