"""What to write instead: the nearest valid key anywhere in the schema, in the right table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainers.core.errors import nearest

from . import schema
from .foreign import KEYS, TABLES, number_of
from .schema import Entry, Json, quoted

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list, tuple),
    "object": (dict,),
}  # fmt: skip


def accepts(node: Json, value: Any) -> bool:
    """Tell whether a value has the right type for a field (its bounds are not looked at)."""
    node = schema.deref(node)
    choices = node.get("anyOf") or node.get("oneOf")
    if choices:
        return any(accepts(choice, value) for choice in choices)
    if "enum" in node or "const" in node:
        return value in node.get("enum", [node.get("const")])
    wanted = _JSON_TYPES.get(node.get("type", ""), ())
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        return False
    return not isinstance(value, (list, tuple)) or _accepts_entries(node, value)


def _accepts_entries(node: Json, values: Sequence[Any]) -> bool:
    firsts: list[Json] = node.get("prefixItems", [])
    rest: Json = node.get("items") or {}
    if not node.get("minItems", 0) <= len(values) <= node.get("maxItems", len(values)):
        return False
    kinds = [*firsts, *[rest] * (len(values) - len(firsts))]
    return all(not kind or accepts(kind, value) for kind, value in zip(kinds, values, strict=False))


def header(table: str) -> str:
    """Write the header of a table as it stands in a file: "[optimizer]", "[[data.concepts]]"."""
    if not table:
        return "the top of the file"
    return f"[[{table[:-2]}]]" if table.endswith("[]") else f"[{table}]"


def for_unknown_key(table: str, name: str, value: Any, kind: str | None, renamed: str | None = None) -> str:
    """Say what to write instead of a key that does not exist.

    `kind` is the kind of its table, where it has one; `renamed` its present path, where an older version had the key.
    """
    if isinstance(value, dict) and not table:
        return _for_unknown_table(name)
    here = [entry for entry in schema.entries() if entry.table == table and _fits(entry, kind)]
    folded = _fold(name)
    for entry in here:
        if _fold(entry.name) == folded:
            return f"write it {entry.name}"
    other_kinds = [entry for entry in schema.entries() if entry.table == table and _fold(entry.name) == folded]
    if other_kinds:
        kinds = ", ".join(quoted(entry.kinds[-1]) for entry in other_kinds if entry.kinds)
        return f"it exists only with kind = {kinds}; remove it or change the kind"
    foreign = KEYS.get(folded)
    if foreign is not None and schema.find(foreign.path):
        return _instead(table, foreign.path, foreign.write, value, foreign.remark)
    if renamed is not None:
        return _instead(table, renamed, "", value, "")
    elsewhere = _same_name(table, folded, value)
    if elsewhere is not None:
        return _instead(table, elsewhere.path, "", value, "")
    return _by_likeness(table, name, value, here)


def for_wrong_type(path: str, value: Any) -> str:
    """Suggest the key of the same name in another table, where that one takes such a value; else ""."""
    table, _, name = path.rpartition(".")
    twin = _same_name(table, _fold(name), value)
    if twin is None or not accepts(twin.node, value):
        return ""
    return _instead(table, twin.path, "", value, "")


def for_choice(value: Any, known: list[Any]) -> str:
    """Suggest one of the known choices."""
    texts = [str(choice) for choice in known]
    hit = nearest(str(value), texts) if isinstance(value, str) else None
    return f'did you mean "{hit}"?' if hit else ""


def _fold(name: str) -> str:
    return name.replace("-", "_").replace(" ", "_").lower()


def _fits(entry: Entry, kind: str | None) -> bool:
    return kind is None or not entry.kinds or kind in entry.kinds


def _same_name(table: str, folded: str, value: Any) -> Entry | None:
    """Find a key of this name in another table, preferring one that takes such a value, then one near the top."""
    hits = [
        entry for entry in schema.entries()
        if entry.name == folded and entry.table not in ("", table, f"{table}[]") and not entry.is_table
    ]  # fmt: skip
    hits.sort(key=lambda entry: (not accepts(entry.node, value), entry.path.count(".")))
    return hits[0] if hits else None


def _instead(table: str, path: str, write: str, value: Any, remark: str) -> str:
    """Put "write this there" into words."""
    target, _, name = path.rpartition(".")
    text = _value_text(path, write, value)
    line = f"{name} = {text}" if text else name
    words = f"write {line}" if target == table else f"{name} belongs in {header(target)}"
    if target != table and text:
        words += f": {line}"
    return f"{words}; {remark}" if remark else words


def _value_text(path: str, write: str, value: Any) -> str:
    """Write the value as the other key wants it; "" where that is not clear."""
    if write:
        number = number_of(value)
        shown = number if write.startswith('"') else value
        if "{}" not in write:
            return write
        if write.startswith('"') and not isinstance(number, (int, float)):
            return _example(path)
        return write.replace("{}", str(shown) if write.startswith('"') else quoted(shown))
    hits = schema.find(path)
    return quoted(value) if hits and accepts(hits[0].node, value) else ""


def _example(path: str) -> str:
    for entry in schema.find(path):
        if entry.node.get("examples"):
            return quoted(entry.node["examples"][0])
    return ""


def _for_unknown_table(name: str) -> str:
    top = [entry.name for entry in schema.entries() if not entry.table]
    known = TABLES.get(_fold(name)) or nearest(name, top)
    if known:
        return f"the table is called [{known}]"
    return "tables are " + ", ".join(f"[{entry}]" for entry in top if entry != "version")


def _by_likeness(table: str, name: str, value: Any, here: list[Entry]) -> str:
    near = nearest(name, [entry.name for entry in here], cutoff=0.7)
    if near:
        return f'did you mean "{near}"?'
    anywhere = {entry.name: entry for entry in reversed(schema.entries()) if entry.table and not entry.is_table}
    far = nearest(name, list(anywhere), cutoff=0.75)
    if far:
        return "did you mean this? " + _instead(table, anywhere[far].path, "", value, "")
    foreign = nearest(name, list(KEYS), cutoff=0.85)
    if foreign and schema.find(KEYS[foreign].path):
        return _instead(table, KEYS[foreign].path, KEYS[foreign].write, value, KEYS[foreign].remark)
    names = ", ".join(dict.fromkeys(entry.name for entry in here))
    return f"keys of {header(table)} are: {names}"
