"""What the printed plan says of pictures, captions and weights, before anything is loaded."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from models._shared.clip_tokenizer import published_merges, vocabulary_of
from tests.pictures import draw, make_pictures
from trainers.cli.app import main
from trainers.core.errors import EXIT_USER
from trainers.engine.planning import Plan, make_plan, prepare
from trainers.engine.render import render_plan
from trainers.presets.load import Loaded, load_preset

LONG = "one two, " * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_pictures(tmp_path / "pictures", 4)
    return tmp_path


def loaded(folder: Path, *, family: str = "sd15", weights: str = "", **data: Any) -> Loaded:
    values: dict[str, Any] = {
        "version": 1,
        "run": {"length": "4 steps"},
        "model": {"family": family, **({"weights": weights} if weights else {})},
        "train": {"kind": "lora"},
        "optimizer": {"kind": "adamw"},
        "data": {"batch": 2, "area": "64px", "concepts": [{"folder": "pictures"}], **data},
    }
    path = folder / "sub" / "preset.toml"
    path.parent.mkdir(exist_ok=True)
    values["data"]["concepts"] = [{**one, "folder": f"../{one['folder']}"} for one in values["data"]["concepts"]]
    path.write_text(tomlkit.dumps(values), encoding="utf-8")
    return load_preset(path)


def line(plan: Plan, name: str) -> str:
    """The line of a plan that begins with a name; "" where there is none."""
    return next((text[14:] for text in render_plan(plan) if text.startswith(f"  {name:<12}")), "")


def caption(folder: Path, name: str, text: str) -> None:
    (folder / "pictures" / name).with_suffix(".txt").write_text(text, encoding="utf-8")


def test_captions_that_fit_are_counted_in_a_few_words(folder: Path) -> None:
    assert line(make_plan(loaded(folder)), "captions") == "4 found; none is cut"


def test_captions_that_are_cut_are_named(folder: Path) -> None:
    caption(folder, "picture01.png", LONG)
    caption(folder, "picture03.png", LONG + "!")
    plan = make_plan(loaded(folder))
    wanted = "4 found; 2 are cut by text_encoder at 75 tokens: picture01.png, picture03.png"
    assert line(plan, "captions") == wanted
    assert json.loads(json.dumps(plan.to_json()))["data"]["cut"][0]["count"] == 2


def test_two_encoders_that_cut_the_same_are_said_once(folder: Path) -> None:
    caption(folder, "picture01.png", LONG)
    plan = make_plan(loaded(folder, family="sdxl"))
    said = "4 found; 1 is cut by text_encoder and text_encoder_2 at 75 tokens: picture01.png"
    assert line(plan, "captions") == said
    caption(folder, "picture02.png", "a" + "!" * 80)  # one token for the first encoder, eighty for the second
    plan = make_plan(loaded(folder, family="sdxl"))
    assert line(plan, "captions") == (
        "4 found; 1 is cut by text_encoder at 75 tokens: picture01.png;"
        " 2 are cut by text_encoder_2 at 75 tokens: picture01.png, picture02.png"
    )


def test_many_names_are_shortened(folder: Path) -> None:
    make_pictures(folder / "pictures", 20)
    for number in range(20):
        caption(folder, f"picture{number:02d}.png", LONG)
    plan = make_plan(loaded(folder))
    assert line(plan, "captions").endswith("picture03.png, picture04.png and 15 more")
    assert plan.data.cut is not None
    assert len(plan.data.cut[0].pictures) == 12


def test_empty_and_missing_captions_are_counted(folder: Path) -> None:
    caption(folder, "picture00.png", "")
    (folder / "pictures" / "picture01.txt").unlink()
    plan = make_plan(loaded(folder, trigger="zwx"))
    assert line(plan, "captions") == "2 found, 1 empty, 1 missing; none is cut"
    made = [{"folder": "pictures", "captions": "template", "template": "a shape"}]
    assert line(make_plan(loaded(folder, concepts=made)), "captions") == "4 made by template or name; none is cut"


def test_a_caption_that_changes_is_counted_in_full_length(folder: Path) -> None:
    caption(folder, "picture01.png", LONG)
    plan = make_plan(loaded(folder, shuffle_tags=True))
    assert "1 is cut" in line(plan, "captions")
    assert "anew in each step" in line(plan, "text")


def test_cropping_enlarging_and_copies(folder: Path) -> None:
    assert line(make_plan(loaded(folder)), "fitting") == ""
    draw(7, (320, 64))[0].save(folder / "pictures" / "wide.png")
    draw(8, (16, 16))[0].save(folder / "pictures" / "small.png")
    for name in ("wide", "small", "copy"):
        caption(folder, f"{name}.png", "a shape")
    (folder / "pictures" / "copy.png").write_bytes((folder / "pictures" / "picture00.png").read_bytes())
    (folder / "pictures" / "bad.png").write_bytes(b"no picture")
    plan = make_plan(loaded(folder, bad_files="skip", buckets=False))
    assert line(plan, "fitting") == (
        "at most 80% of a picture is cut off (wide.png); 1 is enlarged, at most to 400% (small.png)"
    )
    assert "7, 1 with the content of another; 7 samples" in line(plan, "pictures")
    assert line(plan, "left out") == "1 files:"
    assert "1 is kept small" in line(make_plan(loaded(folder, bad_files="skip", small="keep")), "fitting")


def test_the_report_lists_what_is_left_out_once(folder: Path) -> None:
    (folder / "pictures" / "bad.png").write_bytes(b"no picture")
    draw(8, (16, 16))[0].save(folder / "pictures" / "small.png")
    caption(folder, "small.png", "a shape")
    report = prepare(loaded(folder, bad_files="skip", small="skip")).report
    assert [Path(name).name for name, _, _ in report.left_out] == ["bad.png", "small.png"]


def test_weights_are_named_so_that_one_can_find_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = folder / "models" / "my ü model"
    model.mkdir(parents=True)
    plan = make_plan(loaded(folder, weights="../models/my ü model"))
    assert plan.weights == str(model)
    for here, home, shown in (
        (folder, folder.parent, "models/my ü model"),
        (folder / "sub", folder, "~/models/my ü model"),
        (folder / "sub", folder / "sub", str(model)),
    ):
        monkeypatch.chdir(here)
        monkeypatch.setattr(Path, "home", lambda home=home: home)
        assert f"weights {shown};" in line(plan, "model")
    for text in ("owner/name", "builtin:starter"):
        assert f"weights {text};" in line(replace(plan, weights=text), "model")
    assert make_plan(loaded(folder)).weights == "stable-diffusion-v1-5/stable-diffusion-v1-5"


def own_tokenizer(folder: Path, length: int) -> Path:
    """A model folder with nothing but a tokenizer, whose length is its own."""
    place = folder / "model" / "tokenizer"
    place.mkdir(parents=True)
    merges = published_merges()[:500]
    (place / "vocab.json").write_text(json.dumps(vocabulary_of(merges)), encoding="utf-8")
    (place / "merges.txt").write_text("\n".join(" ".join(pair) for pair in merges), encoding="utf-8")
    (place / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}), encoding="utf-8")
    return folder / "model"


def test_check_names_the_cut_part(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    caption(folder, "picture01.png", "a b c d e f g h")
    for number in (0, 2, 3):
        caption(folder, f"picture{number:02d}.png", "a b")
    preset = loaded(folder, weights=os.path.relpath(own_tokenizer(folder, 8), folder / "sub")).path
    assert main(["check", str(preset), "--data", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["data"]
    assert answer["cut"] == [
        {
            "picture": "picture01.png",
            "encoder": "text_encoder",
            "has": 8,
            "fits": 6,
            "kept": "a b c d e f ",
            "cut": "g h",
        }
    ]
    assert answer["tokens"] == [
        {"encoder": "text_encoder", "fits": 6, "captions": 4, "least": 2, "median": 2, "most": 8, "cut": 1}
    ]
    assert answer["examples"][1]["tokens"] == {"text_encoder": [8, 6]}
    assert main(["check", str(preset), "--data"]) == 0
    text = capsys.readouterr().out
    for word in ("Captions that are cut (1)", "a b c d e f | g h", "8/6", "2/6"):
        assert word in text


def test_check_says_all_that_is_wrong_with_data_and_tokenizer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = own_tokenizer(folder, 8)
    (model / "tokenizer" / "vocab.json").write_text("{", encoding="utf-8")
    preset = loaded(folder, weights="../model").path
    assert main(["check", str(preset), "--data", "--json"]) == EXIT_USER
    answer = json.loads(capsys.readouterr().out)
    assert ["tokenizer can't be read" in problem["what"] for problem in answer["problems"]] == [True]
    (folder / "pictures" / "picture00.txt").unlink()
    assert main(["check", str(preset), "--data", "--json"]) == EXIT_USER
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["problems"]) == 2
    assert answer["data"]["tokens"] == []
