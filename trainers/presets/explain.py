"""Explain a key or a table of a preset from the schema: what `trainers presets explain optimizer.lr` prints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trainers.core.errors import UserError, nearest

from . import remedies, schema
from .foreign import KEYS, TABLES
from .schema import Entry, Json, bounds, deref, describe, quoted


@dataclass(frozen=True)
class Explanation:
    """What is known of one key or table.

    `type` says what a value may be, `bounds` its limits, `default` is written as in a file ("" if there is none),
    `kinds` are the kinds of its table that have it (empty: all). `members` are the keys of a table; keys whose help or
    default differs from kind to kind are told apart in `variants`.
    """

    path: str
    help: str
    type: str = ""
    unit: str = ""
    bounds: str = ""
    default: str = ""
    required: bool = False
    advanced: bool = False
    examples: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    where: str = ""
    members: tuple[Explanation, ...] = ()
    variants: tuple[Explanation, ...] = ()


def explain(path: str) -> Explanation:
    """Explain a dotted path; a name alone is enough where it is the only one. Raises UserError with near names."""
    entries = schema.find(path) or schema.find(_only_match(path))
    entry = entries[0]
    if entry.is_table:
        return _table(entry)
    variants = _variants(entries)
    return variants[0] if len(variants) == 1 else _joined(entry, variants)


def explain_all() -> tuple[Explanation, ...]:
    """Explain every table, in the order of a preset."""
    return tuple(explain(entry.path) for entry in schema.entries() if not entry.table)


def render(explanation: Explanation) -> str:
    """Write an explanation as plain text."""
    if explanation.members:
        lines = [f"{explanation.where or explanation.path}  {explanation.help}".rstrip()]
        for member in explanation.members:
            lines.append("")
            lines += [f"  {line}" for line in render(member).splitlines()]
        return "\n".join(lines)
    lines = [f"{explanation.path}  {explanation.help}".rstrip()]
    if explanation.variants:
        for variant in explanation.variants:
            lines += [f"  kind {', '.join(variant.kinds)}: {variant.help}"]
            lines += _details(replace(variant, kinds=(), where=""), "    ")
        return "\n".join([*lines, f"  table    {explanation.where}"])
    return "\n".join([*lines, *_details(explanation, "  ")])


def _details(one: Explanation, indent: str) -> list[str]:
    rows = [
        ("value", one.type), ("unit", one.unit), ("default", "none; must be given" if one.required else one.default),
        ("example", ", ".join(one.examples)), ("kinds", ", ".join(one.kinds)), ("table", one.where),
    ]  # fmt: skip
    return [f"{indent}{name:<8} {text}" for name, text in rows if text]


def _table(entry: Entry) -> Explanation:
    inner = [known for known in schema.entries() if known.table in (entry.path, f"{entry.path}[]")]
    names = dict.fromkeys(known.path for known in inner)
    is_list = deref(entry.node).get("type") == "array"
    return Explanation(
        path=entry.path, help=_table_help(entry), required=entry.required, kinds=schema.kinds_of(entry.path),
        where=f"[[{entry.path}]]" if is_list else f"[{entry.path}]", members=tuple(explain(path) for path in names),
    )  # fmt: skip


def _table_help(entry: Entry) -> str:
    """A field's own help and, of a table with one form, the first paragraph of its class."""
    forms = schema.tables(entry.node)
    own = entry.node.get("description", "")
    inner = forms[0][2].get("description", "") if len(forms) == 1 else ""
    return str(own or inner.split("\n\n")[0])


def _variants(entries: tuple[Entry, ...]) -> list[Explanation]:
    """One explanation per different wording, with the kinds that share it."""
    grouped: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        key = (entry.help, _default(entry.node), describe(entry.node), entry.unit) if entry.name != "kind" else ()
        grouped.setdefault(key, []).append(entry)
    return [_one(group) for group in grouped.values()]


def _one(group: list[Entry]) -> Explanation:
    entry = group[0]
    table_kinds = schema.kinds_of(entry.table)
    kinds = tuple(kind for member in group for kind in member.kinds[-1:] if kind in table_kinds)
    is_kind = entry.name == "kind" and len(table_kinds) > 1
    return Explanation(
        path=entry.path,
        help=f"Which one: {', '.join(table_kinds)}." if is_kind else entry.help,
        type="one of " + ", ".join(quoted(kind) for kind in table_kinds) if is_kind else describe(entry.node),
        unit=entry.unit, bounds=bounds(entry.node), default="" if is_kind else _default(entry.node),
        required=entry.required, advanced=bool(entry.node.get("advanced")),
        examples=tuple(quoted(example) for example in entry.node.get("examples") or ()),
        kinds=() if set(kinds) == set(table_kinds) else kinds,
        where=remedies.header(entry.table),
    )  # fmt: skip


def _joined(entry: Entry, variants: list[Explanation]) -> Explanation:
    return Explanation(
        path=entry.path, help=variants[0].help, where=remedies.header(entry.table), variants=tuple(variants),
        kinds=tuple(kind for variant in variants for kind in variant.kinds),
    )  # fmt: skip


def _default(node: Json) -> str:
    if "default" not in node:
        return ""
    return "left out" if node["default"] is None else quoted(node["default"])


def _only_match(name: str) -> str:
    """Find what a short or foreign name means."""
    folded = name.strip("[]").replace("-", "_")
    paths = list(dict.fromkeys(entry.path for entry in schema.entries()))
    hits = [path for path in paths if path == folded or path.endswith(f".{folded}")]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise UserError(f'"{name}" is the name of several keys', remedy=f"say which: {', '.join(hits)}")
    last = folded.rpartition(".")[2]
    foreign = KEYS[last].path if last in KEYS else TABLES.get(last)
    known = foreign if foreign and schema.find(foreign) else nearest(folded, paths)
    remedy = f"did you mean {known}?" if known else "tables are " + ", ".join(path for path in paths if "." not in path)
    raise UserError(f'there is no key "{name}" in a preset', remedy=remedy)
