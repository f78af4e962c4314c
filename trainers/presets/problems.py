"""Turn what the validation reports into sentences for people: place, what is wrong, what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from trainers.core.errors import Problem

from . import edit, remedies, schema
from .lines import Path
from .migrate import renamed
from .schema import Json, describe, quoted

_NUMBERS = {"int_type", "float_type", "bool_type"}
Where = Callable[[Path], str]


def collect(lax: ValidationError | None, strict: ValidationError | None) -> dict[Path, Any]:
    """Gather the errors of both validations, by cleaned path.

    Of the strict one only texts and true/false in the place of numbers count: pydantic would convert these in silence.
    """
    found: dict[Path, Any] = {}
    for error in lax.errors(include_url=False) if lax else ():
        path = key_path(error["loc"])
        if path not in found or _rank(error) < _rank(found[path]):
            found[path] = error
    for error in strict.errors(include_url=False) if strict else ():
        if error["type"] in _NUMBERS and isinstance(error["input"], (str, bool)):
            found.setdefault(key_path(error["loc"]), error)
    return {path: error for path, error in found.items() if not _inside_another(path, error, found)}


def _rank(error: Any) -> int:
    """Of several errors of one value (of a choice of types), the one with a sentence for people is shown."""
    return 0 if error["type"] == "value_error" else 1


def _inside_another(path: Path, error: Any, found: Mapping[Path, Any]) -> bool:
    """Leave out an error of a whole value where its parts are reported too."""
    return error["type"] != "value_error" and any(other != path and other[: len(path)] == path for other in found)


def key_path(loc: Iterable[str | int]) -> Path:
    """Return the keys of an error's location; kinds of unions and names of types in it are left out."""
    node: Json = schema.json_schema()
    path: list[str | int] = []
    for part in loc:
        inner = _down(node, part)
        if inner is None:
            if isinstance(part, str) and _is_table(node):
                path.append(part)
            break
        is_key, node = inner
        if is_key:
            path.append(part)
    return tuple(path)


def _is_table(node: Json) -> bool:
    return "properties" in schema.deref(node)


def _down(node: Json, part: str | int) -> tuple[bool, Json] | None:
    """Go one step into the schema: (is this part a key, what it leads to); None where the way ends."""
    node = schema.deref(node)
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        return _down(choices[0], part)
    if "discriminator" in node and part in node["discriminator"]["mapping"]:
        return False, {"$ref": node["discriminator"]["mapping"][part]}
    if isinstance(part, int) and node.get("type") == "array":
        return True, node.get("items") or {}
    if part in node.get("properties", ()):
        return True, node["properties"][part]
    if isinstance(part, str) and isinstance(node.get("additionalProperties"), dict):
        return True, node["additionalProperties"]
    return None


def problem(path: Path, error: Any, values: Mapping[str, Any], where: Where) -> Problem:
    """Put one error into words."""
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return _unknown_key(path, value, values, where)
    if kind == "missing":
        return _missing(path, values, where)
    place = where(path)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _kind(path, error, where((*path, "kind") if kind == "union_tag_invalid" else path))
    if kind == "value_error":
        text = str(error["ctx"]["error"])
        return Problem(place, text, "" if path else "see `trainers presets explain`")
    return _wrong_value(path, value, values, place)


def kind_of(path: Path, values: Mapping[str, Any]) -> str | None:
    """Return the kind of the table at a path."""
    if not edit.has(values, (*path, "kind")):
        return None
    kind = edit.get(values, (*path, "kind"))
    return kind if isinstance(kind, str) else None


def schema_path(path: Path) -> str:
    """Write a path as the schema does: "data.concepts[].folder"."""
    text = ""
    for part in path:
        text += "[]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _unknown_key(path: Path, value: Any, values: Mapping[str, Any], where: Where) -> Problem:
    table, name = schema_path(path[:-1]), str(path[-1])
    kind = kind_of(path[:-1], values)
    suffix = f" of kind {quoted(kind)}" if kind and len(schema.kinds_of(table)) > 1 else ""
    thing = f'table "{name}"' if not table and isinstance(value, dict) else f'key "{name}"'
    remedy = remedies.for_unknown_key(table, name, value, kind, renamed(schema_path(path)))
    return Problem(where(path), f"there is no {thing} in {_named(table)}{suffix}", remedy)


def _named(table: str) -> str:
    return remedies.header(table) if table else "a preset"


def _missing(path: Path, values: Mapping[str, Any], where: Where) -> Problem:
    entries = schema.find(schema_path(path), kind_of(path[:-1], values))
    if not entries:
        return Problem(where(path), f"{path[-1]} is missing")
    entry = entries[0]
    if entry.is_table:
        needed = [
            f"{inner.name} = {_example(inner)}" for inner in schema.entries()
            if inner.table in (entry.path, f"{entry.path}[]") and inner.required and inner.kinds in ((), entry.kinds)
        ]  # fmt: skip
        is_list = schema.deref(entry.node).get("type") == "array"
        header = f"[[{entry.path}]]" if is_list else f"[{entry.path}]"
        keys = ", ".join(needed) or _kinds_text(entry.path)
        return Problem(where(path), f"{header} is missing", f"add {header} with {keys}")
    text = f"{entry.name} is missing in {_named(entry.table)}" if entry.table else f"{entry.name} is missing"
    remedy = f"add {entry.name} = {_example(entry)}" + (f"   # {entry.help}" if entry.help else "")
    return Problem(where(path), text, remedy)


def _example(entry: schema.Entry) -> str:
    if entry.path == "version":
        return str(entry.node.get("const", 1))
    examples = entry.node.get("examples")
    if examples:
        return quoted(examples[0])
    return {"string": '"..."', "integer": "1", "number": "1.0"}.get(schema.deref(entry.node).get("type", ""), "...")


def _kinds_text(table: str) -> str:
    kinds = schema.kinds_of(table)
    return "kind = one of " + ", ".join(quoted(kind) for kind in kinds) if kinds else "its keys"


def _kind(path: Path, error: Any, place: str) -> Problem:
    """A table whose kind is missing or unknown."""
    table = schema_path(path)
    kinds = list(schema.kinds_of(table))
    listed = ", ".join(quoted(kind) for kind in kinds)
    if error["type"] == "union_tag_not_found":
        return Problem(place, f"kind is missing in {_named(table)}", f"add kind = one of {listed}")
    given = error["ctx"]["tag"]
    hint = remedies.for_choice(given, kinds)
    return Problem(place, f'"{given}" is no kind of {_named(table)}', f"{hint + ' ' if hint else ''}kinds are {listed}")


def _wrong_value(path: Path, value: Any, values: Mapping[str, Any], place: str) -> Problem:
    text = schema_path(path)
    entries = schema.find(text, kind_of(path[:-1], values))
    if not entries:
        return Problem(place, f"{_short(value)} cannot stand here", f"see `trainers presets explain {text}`")
    node = entries[0].node
    what = f"must be {describe(node)}, not {_short(value)}"
    return Problem(place, what, _value_remedy(text, node, value))


def _short(value: Any) -> str:
    text = quoted(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _value_remedy(path: str, node: Json, value: Any) -> str:
    name = path.rpartition(".")[2]
    plain = schema.deref(node)
    if "enum" in plain or "const" in plain:
        return remedies.for_choice(value, plain.get("enum", [plain.get("const")]))
    if isinstance(value, str) and not remedies.accepts(node, value):
        bare = _without_quotes(value)
        if bare is not None and remedies.accepts(node, bare):
            return f"write it without quotation marks: {name} = {quoted(bare)}"
    if not remedies.accepts(node, value):
        twin = remedies.for_wrong_type(path, value)
        if twin:
            return f"perhaps another key is meant: {twin}"
        if remedies.accepts(node, [value]):
            return f"write {name} = [{quoted(value)}]"
        if remedies.accepts(node, str(value)) and not isinstance(value, (dict, list)):
            return f'write {name} = "{value}"'
    examples = node.get("examples")
    if examples:
        return f"for example {name} = {quoted(examples[0])}"
    return f"see `trainers presets explain {path.replace('[]', '')}`"


def _without_quotes(text: str) -> Any:
    """Read a text as the number or truth value that was probably meant, or None."""
    words = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return None
