"""Contact sheets: pictures of the same prompts over time, on one labelled picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from trainers.core.atomic import replacing

_MARGIN = 12
_TILE_LIMIT = 320
_INK = (32, 33, 36)
_PAPER = (255, 255, 255)
_GREY = (110, 114, 120)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _wrap(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, lines: int) -> list[str]:
    """Break `text` into at most `lines` lines of `width` pixels; what does not fit ends in an ellipsis."""
    out: list[str] = []
    words = text.split()
    while words and len(out) < lines:
        line = words.pop(0)
        while words and font.getlength(f"{line} {words[0]}") <= width:
            line += " " + words.pop(0)
        out.append(line)
    if words and out:
        out[-1] = out[-1] + " …"
    return out


def contact_sheet(
    rows: Sequence[Sequence[Image.Image]], row_labels: Sequence[str], column_labels: Sequence[str], title: str
) -> Image.Image:
    """Lay out pictures: one row a moment, one column a prompt. Small pictures are enlarged to be seen."""
    widest = max(picture.width for row in rows for picture in row)
    factor = max(1, min(2, 256 // widest)) if widest <= 256 else min(1.0, _TILE_LIMIT / widest)
    tile = (round(rows[0][0].width * factor), round(rows[0][0].height * factor))
    label_font, title_font = _font(13), _font(18)
    left = max(72, round(max(label_font.getlength(label) for label in row_labels)) + 2 * _MARGIN)
    top = _MARGIN + 26 + 3 * 16 + 8
    size = (left + len(column_labels) * (tile[0] + _MARGIN), top + len(rows) * (tile[1] + _MARGIN))
    sheet = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), title, fill=_INK, font=title_font)
    for column, label in enumerate(column_labels):
        x = left + column * (tile[0] + _MARGIN)
        for line, text in enumerate(_wrap(label, tile[0], label_font, 3)):
            draw.text((x, _MARGIN + 28 + 16 * line), text, fill=_GREY, font=label_font)
    for index, (row, label) in enumerate(zip(rows, row_labels, strict=True)):
        y = top + index * (tile[1] + _MARGIN)
        draw.text((_MARGIN, y + tile[1] // 2 - 8), label, fill=_INK, font=label_font)
        for column, picture in enumerate(row):
            resized = picture.convert("RGB").resize(
                tile, Image.Resampling.LANCZOS if factor < 1 else Image.Resampling.BICUBIC
            )
            sheet.paste(resized, (left + column * (tile[0] + _MARGIN), y))
    return sheet


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a PNG whole or not at all."""
    with replacing(path, durable=False) as temporary:
        picture.save(temporary, format="PNG")


def sheet_over_time(samples: Path, prompts: Sequence[str], title: str, *, most: int = 6) -> Image.Image | None:
    """Collect `samples/step-*/` into one sheet, the first and last moment always among at most `most` rows."""
    folders = sorted(folder for folder in samples.glob("step-*") if folder.is_dir())
    folders = [
        folder for folder in folders if all((folder / f"{index:02d}.png").exists() for index in range(len(prompts)))
    ]
    if not folders:
        return None
    if len(folders) > most:
        folders = [folders[round(index * (len(folders) - 1) / (most - 1))] for index in range(most)]
    rows = [[_read(folder / f"{index:02d}.png") for index in range(len(prompts))] for folder in folders]
    labels = [f"step {int(folder.name.removeprefix('step-'))}" for folder in folders]
    labels[0] = "before" if labels[0] == "step 0" else labels[0]
    return contact_sheet(rows, labels, list(prompts), title)


def _read(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return picture.convert("RGB")
