"""Reads text files as people's programs write them: any Unicode with a mark, UTF-8, or old Windows text."""

from __future__ import annotations

import codecs
from pathlib import Path

from trainers.core.errors import Problem

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with the one of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class TextError(Exception):
    """A text file that cannot be read; the message is for people and does not name the file."""


def read_text(path: Path, *, strict: bool = False) -> tuple[str, Problem | None]:
    """Read a text file: (text without mark, warning when the encoding had to be guessed). Raises TextError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TextError(f"cannot be read: {error.strerror or error}") from error
    text, guess = decode_text(data, strict=strict)
    if guess is None:
        return text, None
    return text, Problem(str(path), f"is not UTF-8; read as {guess}", "save it as UTF-8 to be sure of every letter")


def decode_text(data: bytes, *, strict: bool = False) -> tuple[str, str | None]:
    """Decode bytes: (text, name of the encoding when it is a guess). `strict` refuses to guess."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode(data[len(mark) :], encoding, f"begins with the mark of {encoding.upper()} but is not"), None
    unmarked = _unmarked_utf16(data)
    if unmarked is None:
        try:
            return data.decode("utf-8"), None
        except UnicodeDecodeError as error:
            if strict:
                raise TextError(f"is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start}") from error
        return _decode(data, "cp1252", "is neither UTF-8 nor Windows-1252"), "Windows-1252"
    if strict:
        raise TextError(f"looks like {unmarked.upper()} without a mark, which is a guess")
    return _decode(data, unmarked, f"looks like {unmarked.upper()} but is not"), unmarked.upper()


def _decode(data: bytes, encoding: str, complaint: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise TextError(f"{complaint} (position {error.start})") from error


def _unmarked_utf16(data: bytes) -> str | None:
    """Recognise UTF-16 without a mark by its zero bytes, which no text in UTF-8 or Windows-1252 has."""
    if len(data) < 2 or len(data) % 2 or b"\x00" not in data:
        return None
    even, odd = data[0::2].count(0), data[1::2].count(0)
    if odd > even and odd * 3 > len(data) // 2:
        return "utf-16-le"
    if even > odd and even * 3 > len(data) // 2:
        return "utf-16-be"
    return None
