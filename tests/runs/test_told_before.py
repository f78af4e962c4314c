"""What a run writes down and says before it loads anything."""

from __future__ import annotations

import json

import pytest

from tests.tiny import Workbench
from trainers.launch import local
from trainers.rundir.layout import RunDir


class NothingIsLoadedError(Exception):
    """Stands where the model would be loaded."""


def test_the_data_report_is_there_before_anything_is_loaded(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*arguments: object, **named: object) -> None:
        raise NothingIsLoadedError

    monkeypatch.setattr("trainers.engine.assemble.assemble", stop)
    path = bench.preset({})
    (bench.folder / "pictures" / "picture02.txt").write_text("one two, " * 40, encoding="utf-8")
    run = RunDir(bench.folder / "runs" / "run")
    with pytest.raises(NothingIsLoadedError):
        local.run(path, out=str(run.folder), cache=str(bench.cache))
    report = json.loads(run.data.read_text(encoding="utf-8"))
    assert run.data.name == "data.json"
    assert report["training"] == 5
    assert [one["picture"] for one in report["cut"]] == ["picture02.png"]
    assert report["cut"][0]["kept"] + report["cut"][0]["cut"] == ("one two, " * 40).strip()
    said = capsys.readouterr().out
    assert "5 found; 1 is cut by text_encoder at 75 tokens: picture02.png" in said
    assert "../" not in said
