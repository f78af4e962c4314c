"""C08: caption files of any encoding give the same text: marks are no letters, old Windows text is read and named."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from tests.pictures import make_pictures
from trainers.data.config import Concept, DataConfig
from trainers.data.items import Scan
from trainers.data.scan import scan

TEXT = "a cat’s café"  # a smart quote and an accent, as word processors and captioners write them


def scan_with(folder: Path, data: bytes, name: str = "picture00.txt", **options: object) -> Scan:
    make_pictures(folder, 1, captions=False)
    (folder / name).write_bytes(data)
    return scan(DataConfig(concepts=[Concept(folder=".")], **options), folder)


@pytest.mark.parametrize("encoding", ["strict", "fallback"])
def test_c08_a_mark_is_not_part_of_the_caption(encoding: str, tmp_path: Path) -> None:
    found = scan_with(tmp_path, b"\xef\xbb\xbfa cat", encoding=encoding)
    assert found.items[0].captions == ("a cat",)
    assert not found.errors
    assert not found.warnings


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_every_unicode_encoding_is_read_without_a_word(mark: bytes, name: str, tmp_path: Path) -> None:
    found = scan_with(tmp_path, mark + TEXT.encode(name), encoding="strict")
    assert found.items[0].captions == (TEXT,)
    assert not found.errors
    assert not found.warnings


@pytest.mark.parametrize(
    ("name", "said"), [("cp1252", "Windows-1252"), ("utf-16-le", "UTF-16-LE"), ("utf-16-be", "UTF-16-BE")]
)
def test_a_guess_is_made_and_the_file_named(name: str, said: str, tmp_path: Path) -> None:
    found = scan_with(tmp_path, TEXT.encode(name))
    assert found.items[0].captions == (TEXT,)
    assert len(found.warnings) == 1
    assert found.warnings[0].where.endswith("picture00.txt")
    assert said in found.warnings[0].what


def test_strict_lists_every_offender_at_once(tmp_path: Path) -> None:
    make_pictures(tmp_path, 4)
    for number in (0, 2, 3):
        (tmp_path / f"picture0{number}.txt").write_bytes(b"the dog\x92s bowl")
    errors = scan(DataConfig(concepts=[Concept(folder=".")], encoding="strict"), tmp_path).errors
    named = [Path(problem.where).name for problem in errors if "0x92" in problem.what]
    assert named == ["picture00.txt", "picture02.txt", "picture03.txt"]


def test_bytes_that_are_text_in_no_encoding_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    found = scan_with(tmp_path, b"a \x81\x8d cat")
    assert any(problem.where.endswith("picture00.txt") for problem in found.errors)


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv", "captions.json"])
def test_metadata_files_may_carry_a_mark_too(name: str, tmp_path: Path) -> None:
    documents = {
        "metadata.jsonl": json.dumps({"file_name": "picture00.png", "text": TEXT}),
        "metadata.csv": f"file_name,text\npicture00.png,{TEXT}\n",
        "captions.json": json.dumps({"picture00.png": TEXT}),
    }
    found = scan_with(tmp_path, codecs.BOM_UTF8 + documents[name].encode(), name)
    assert found.items[0].captions == (TEXT,)
