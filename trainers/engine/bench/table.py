"""The measurements as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

_DIGITS = {"s": 3, "ms": 1, "pictures/s": 1, "MiB": 0}
_COLUMNS = ("what", "unit", "plain", "this suite", "ratio", "least .. most", "on the wall", "aim")


def render_bench(measured: Mapping[str, Any]) -> Group:
    """Render what `bench_step` returned: one row each, then where and when it was measured."""
    table = Table(*_COLUMNS, box=box.SIMPLE_HEAD)
    for row in measured["rows"]:
        table.add_row(*cells(row))
    place = f"{measured['machine']}, torch {measured['torch']}, {measured['date']}"
    how = (
        f"{measured['rounds']} rounds of {measured['steps']} steps, one thread, CPU seconds; ratio = this suite / plain"
    )
    return Group(table, place, how)


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One row as text, in the order of the columns; what was not measured is left empty."""
    digits = _DIGITS[row["unit"]]
    spread = "" if row["least"] is None else f"{row['least']:.2f} .. {row['most']:.2f}"
    return (
        row["name"], row["unit"], _number(row["plain"], digits), _number(row["ours"], digits),
        _number(row["ratio"], 2), spread, _number(row["wall"], 2), row["aim"],
    )  # fmt: skip


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
