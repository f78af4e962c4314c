"""Shows a data report on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainers.core.errors import Problem

from .report import BucketRow, CaptionRow, Changed, DataReport, Example
from .tokens import CutCaption, TokenRow

_MOST_ROWS = 20
_AROUND = 24  # letters of a long caption that are shown before its cut


def render(report: DataReport) -> RenderableType:
    """Make the report readable: what there is, how it is cut, what it is called, what is wrong."""
    parts: list[RenderableType] = [_headline(report)]
    if report.buckets:
        parts.append(_bucket_table(report.buckets))
    if report.captions:
        parts.append(_caption_table(report.captions))
        if report.tokens:
            parts.append(_token_table(report.tokens))
        if report.cut:
            parts.append(_cut_table(report.cut))
        parts.append(_example_table(report.examples))
    if report.changed:
        parts.append(_changed_table(report.changed))
    if report.left_out:
        parts.append(_left_out_table(report.left_out))
    listed = {path for path, _, _ in report.left_out}
    parts += _problems("Warnings", [one for one in report.warnings if one.where not in listed], "yellow")
    parts += _problems("Errors", report.errors, "red")
    return Group(*parts)


def _headline(report: DataReport) -> Text:
    counts = [
        _count(report.training, "training picture"),
        _count(report.class_pictures, "class picture"),
        _count(report.validation, "validation picture"),
    ]
    text = Text(", ".join(count for count in counts if not count.startswith("0 ")) or "no pictures", style="bold")
    if report.steps_per_epoch is not None and report.samples_per_epoch is not None:
        epoch = f"{_count(report.samples_per_epoch, 'sample')} in {_count(report.steps_per_epoch, 'step')}"
        text.append(f"\none epoch: {epoch} of {report.batch}", style="not bold")
    return text


def _bucket_table(rows: Sequence[BucketRow]) -> Table:
    table = _table("Shapes", "width x height", "pictures", "samples", "groups", "short", "cut off", "most", "scale")
    for row in rows[:_MOST_ROWS]:
        numbers = (row.samples, row.groups, row.short)
        table.add_row(
            f"{row.width} x {row.height}",
            str(row.pictures),
            *("-" if number is None else str(number) for number in numbers),
            _percent(row.crop_mean),
            _percent(row.crop_most),
            _range(row.scale_least, row.scale_most),
        )
    return _with_rest(table, len(rows))


def _caption_table(rows: Sequence[CaptionRow]) -> Table:
    encoders = list(dict.fromkeys(name for row in rows for name in row.cut))
    cuts = [f"cut by {name}" for name in encoders]
    table = _table("Captions", "concept", "pictures", "found", "empty", "missing", "made", "several", *cuts)
    for row in rows:
        numbers = [row.pictures, row.found, row.empty, row.missing, row.made, row.several]
        numbers += [row.cut.get(name, 0) for name in encoders]
        table.add_row(_plain(f"{row.folder} ({row.role})"), *map(str, numbers))
    return table


def _token_table(rows: Sequence[TokenRow]) -> Table:
    table = _table("Tokens in a caption", "text encoder", "fit", "least", "median", "most", "captions cut")
    for row in rows:
        table.add_row(row.encoder, *map(str, (row.fits, row.least, row.median, row.most, row.cut)))
    return table


def _cut_table(rows: Sequence[CutCaption]) -> Table:
    table = _table(f"Captions that are cut ({len(rows)})", "picture", "text encoder", "tokens", "never seen")
    table.columns[1].justify = table.columns[3].justify = "left"
    table.columns[3].overflow = "fold"
    for row in rows[:_MOST_ROWS]:
        kept = row.kept.rstrip()
        before = kept if len(kept) <= _AROUND else f"...{kept[-_AROUND:]}"
        text = Text(before, style="dim").append(" | ").append(row.cut, style="not dim yellow")
        table.add_row(_plain(row.picture), row.encoder, f"{row.has}/{row.fits}", text)
    return _with_rest(table, len(rows))


def _example_table(examples: Sequence[Example]) -> Table:
    table = _table("Captions exactly as encoded", "picture", "caption", "tokens")
    table.columns[1].justify = "left"
    table.columns[1].overflow = "fold"
    for one in examples:
        counts = dict.fromkeys(f"{has}/{fits}" for has, fits in one.tokens.values())
        each = [f"{name} {has}/{fits}" for name, (has, fits) in one.tokens.items()]
        cell = "\n".join(counts if len(counts) == 1 else each)
        table.add_row(_plain(one.picture), _plain(one.caption or "(empty)"), cell)
    return table


def _changed_table(rows: Sequence[Changed]) -> Table:
    table = _table("Pictures changed by much", "picture", "size", "becomes", "scale", "cut off", "why")
    for row in rows[:_MOST_ROWS]:
        sizes = [f"{width} x {height}" for height, width in (row.size, row.bucket)]
        table.add_row(_plain(row.picture), *sizes, _percent(row.scale), _percent(row.crop_share), row.note)
    return _with_rest(table, len(rows))


def _left_out_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    table = _table(f"Left out ({len(rows)})", "file", "why")
    table.columns[1].justify = "left"
    table.columns[1].overflow = "fold"
    for path, reason, remedy in rows:  # never shortened: each of these is a picture that someone misses
        table.add_row(_plain(PurePath(path).name), _plain(f"{reason} -> {remedy}" if remedy else reason))
    return table


def _problems(title: str, problems: Sequence[Problem], colour: str) -> list[RenderableType]:
    return [_lines(f"{title} ({len(problems)})", [str(problem) for problem in problems], colour)] if problems else []


def _lines(title: str, lines: Sequence[str], colour: str) -> Text:
    text = Text(f"\n{title}\n", style=f"bold {colour}")
    text.append("\n".join(f"  {line}" for line in lines), style=f"not bold {colour}")
    return text


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column(first, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _with_rest(table: Table, count: int) -> Table:
    if count > _MOST_ROWS:
        table.add_row(f"and {count - _MOST_ROWS} more (all of them with --json)")
    return table


def _plain(text: str) -> Text:
    """Keep square brackets in names and captions from being read as markup."""
    return Text(text)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _range(least: float, most: float) -> str:
    return _percent(least) if _percent(least) == _percent(most) else f"{_percent(least)} .. {_percent(most)}"
