"""Edit a preset in place: values change, comments, order and spaces stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array, InlineTable, Item, Table

from trainers.core.errors import UserError

from .lines import Path


def parse_path(text: str) -> Path:
    """Read a dotted key as in TOML: "data.concepts.0.folder", 'train.ranks."*.attn1.*"'; digits are list positions.

    Raises ValueError when it is no key.
    """
    try:
        node: Any = tomlkit.parse(f"{text} = 0\n").unwrap()
    except TOMLKitError as error:
        raise ValueError(f'"{text}" is no key; write it like optimizer.lr') from error
    path: list[str | int] = []
    while isinstance(node, dict) and len(node) == 1:
        key, node = next(iter(node.items()))
        path.append(int(key) if key.isdecimal() else key)
    if node != 0 or not path:
        raise ValueError(f'"{text}" is no key; write it like optimizer.lr')
    return tuple(path)


def write_path(path: Sequence[str | int]) -> str:
    """Write a path as a dotted key, with quotation marks where TOML wants them."""
    return ".".join(tomlkit.key(str(part)).as_string() for part in path)


def get(document: Any, path: Sequence[str | int]) -> Any:
    """Return what stands at a path. KeyError or IndexError when there is nothing."""
    node = document
    for part in path:
        node = node[_usable(node, part)]
    return node


def has(document: Any, path: Sequence[str | int]) -> bool:
    """Tell whether anything stands at a path."""
    try:
        get(document, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def set_value(document: Any, path: str | Sequence[str | int], value: Any) -> None:
    """Set one value, of a TOMLDocument or of plain dicts; tables and the next entry of a list are made on the way.

    A value that is set to what it is already stays as it is written (1e-4 is not turned into 0.0001).
    """
    steps = parse_path(path) if isinstance(path, str) else tuple(path)
    node: Any = document
    for number, part in enumerate(steps[:-1]):
        node = _step_into(node, part, steps[number + 1], steps[: number + 1])
    last = _usable(node, steps[-1])
    if isinstance(node, list) and last == len(node):
        node.append(value)
        return
    if not _holds(node, last):
        raise _no_place(node, steps)
    old = get(node, [last]) if has(node, [last]) else None
    plain = old.unwrap() if isinstance(old, Item) else old
    if old is None or type(plain) is not type(value) or plain != value:
        node[last] = value


def _holds(node: Any, part: str | int) -> bool:
    return isinstance(node, Mapping) or (isinstance(node, list) and isinstance(part, int) and part < len(node))


def remove(document: Any, path: str | Sequence[str | int]) -> None:
    """Remove a key, so that its default holds again; nothing happens where there is none."""
    steps = parse_path(path) if isinstance(path, str) else tuple(path)
    if has(document, steps):
        parent = get(document, steps[:-1])
        del parent[_usable(parent, steps[-1])]


def move(document: TOMLDocument, old: Path, new: Path, value: Any) -> TOMLDocument:
    """Return the document with a key renamed. In the same table it keeps its place and comment."""
    parent = get(document, old[:-1])
    body = parent.value.body if isinstance(parent, Table) else []
    for number, (key, item) in enumerate(body):
        if old[:-1] == new[:-1] and key is not None and key.key == old[-1]:
            body[number] = (tomlkit.key(str(new[-1])), _in_the_style_of(item, value))
            return tomlkit.parse(tomlkit.dumps(document))
    remove(document, old)
    set_value(document, new, value)
    return document


def _in_the_style_of(item: Item, value: Any) -> Item:
    """Return a value with the spaces and the comment of another one; the same value stays as it is written."""
    if item.unwrap() == value:
        return item
    fresh = tomlkit.item(value)
    for name in ("indent", "comment_ws", "comment", "trail"):
        setattr(fresh.trivia, name, getattr(item.trivia, name))
    return fresh


def copied(values: Any) -> Any:
    """Copy plain values in depth; tuples become lists, as in a file."""
    if isinstance(values, Mapping):
        return {str(key): copied(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [copied(value) for value in values]
    return values


def _usable(node: Any, part: str | int) -> str | int:
    """Tables have names even where these are digits."""
    return str(part) if isinstance(node, Mapping) else part


def _step_into(node: Any, part: str | int, following: str | int, path: Path) -> Any:
    """Return the table or list at `part`; one that is missing is made, in the style of `node`."""
    key = _usable(node, part)
    if isinstance(node, Mapping):
        if key not in node:
            node[key] = _empty(node, is_list=isinstance(following, int))  # type: ignore[index]
        return node[key]
    if isinstance(node, list) and isinstance(key, int) and key <= len(node):
        if key == len(node):
            node.append(_empty(node, is_list=False))
        return node[key]
    raise _no_place(node, path)


def _empty(parent: Any, *, is_list: bool) -> Any:
    """Make an empty table or list of tables: inline in inline things, plain in plain ones."""
    if not isinstance(parent, (TOMLDocument, Item, OutOfOrderTableProxy)):
        return [] if is_list else {}
    if isinstance(parent, (InlineTable, Array)):
        return tomlkit.array() if is_list else tomlkit.inline_table()
    return tomlkit.aot() if is_list else tomlkit.table()


def _no_place(node: Any, path: Path) -> UserError:
    if isinstance(node, list):
        remedy = f"entries count from 0; the list has {len(node)}" if node else "the list is empty"
    else:
        remedy = "only tables and lists have entries"
    return UserError(f"there is no {write_path(path)}", where=write_path(path), remedy=remedy)
