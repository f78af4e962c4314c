"""The starter model's score counts right, whoever paints; prompts and classifier are the same every time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from models.starter import classifier as judge
from models.starter import scorer
from models.starter.data import unseen_ground
from models.starter.painting import draw_sheet, save_sheet
from models.starter.pictures import GROUNDS
from models.starter.prompts import Prompt, make_prompts
from models.starter.sprites import LOOKS
from tests.starter_sprites import SUBJECTS, use_stand_ins
from trainers.cli.app import app
from trainers.core import discover

NAMES = [subject.name for subject in SUBJECTS]
MANY = [f"thing {number}" for number in range(313)]


def test_prompts_cover_subjects_looks_and_grounds() -> None:
    prompts = make_prompts(MANY, 200)
    assert len({prompt.subject for prompt in prompts}) == 200
    assert set(Counter(prompt.look for prompt in prompts).values()) == {66, 67}
    assert len({prompt.ground for prompt in prompts}) == len(GROUNDS)
    assert sum(prompt.seen for prompt in prompts) == 100
    assert all((prompt.ground != unseen_ground(prompt.subject, prompt.look)) == prompt.seen for prompt in prompts)


def test_only_the_subjects_of_a_list_are_asked_for() -> None:
    core = (3, 100, 7, 250)
    prompts = make_prompts(MANY, 24, core)
    assert Counter(prompt.subject for prompt in prompts) == dict.fromkeys(core, 6)
    assert len({(prompt.subject, prompt.look) for prompt in prompts}) == 12


def test_seen_and_unseen_prompts_are_worded_alike() -> None:
    prompts = make_prompts(["X"] * 313, 280)
    forms: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for prompt in prompts:
        text = prompt.text.replace("an orange", "a orange").replace(LOOKS[prompt.look], "LOOK")
        forms[prompt.seen][text.replace(list(GROUNDS)[prompt.ground], "GROUND")] += 1
    assert forms[True] == forms[False]


def test_a_prompt_says_what_it_asks_for() -> None:
    for prompt in make_prompts(NAMES, 12):
        assert NAMES[prompt.subject] in prompt.text
        assert LOOKS[prompt.look] in prompt.text
        assert list(GROUNDS)[prompt.ground] in prompt.text


def asked(*rows: tuple[int, int, int, bool]) -> list[Prompt]:
    return [Prompt(f"prompt {row}", *row) for row in rows]


def test_shares_are_counted_by_group() -> None:
    prompts = asked((0, 0, 0, True), (1, 1, 1, True), (2, 2, 2, False), (0, 1, 3, False))
    found = {"subject": [0, 1, 0, 1], "look": [0, 1, 2, 1], "ground": [0, 9, 2, 3]}
    guesses = {head: torch.tensor(numbers) for head, numbers in found.items()}
    report: Any = scorer.score(guesses, prompts, NAMES)
    shares = report["shares"]
    assert shares["all pictures"] == {"pictures": 4, "subject": 0.5, "look": 1.0, "ground": 0.75, "all three": 0.25}
    assert shares["seen combinations"] == {
        "pictures": 2,
        "subject": 1.0,
        "look": 1.0,
        "ground": 0.5,
        "all three": 0.5,
    }
    assert shares["unseen combinations"]["subject"] == 0.0
    assert shares["look cartoon"]["pictures"] == 2
    assert [row["number"] for row in report["wrong"]] == [1, 2, 3]
    assert report["wrong"][1]["seen as"] == {"subject": "disc"}


def test_margins_hold_the_share_and_stay_within_bounds() -> None:
    guesses = {head: torch.zeros(50, dtype=torch.long) for head in judge.HEADS}
    report: Any = scorer.score(guesses, asked(*[(0, 0, 0, True)] * 50), NAMES)
    low, high = report["margin"]["all three"]
    assert (low, high) == (pytest.approx(0.9287, abs=1e-3), pytest.approx(1.0))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of the stand-ins, trained for a few steps and kept in a file."""
    file = tmp_path_factory.mktemp("judge") / "classifier.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        use_stand_ins(patch)
        patch.setattr(judge, "STEPS", 120)
        patch.setattr(judge, "BATCH", 32)
        judge.obtain_classifier(Path(), file, lambda text: None)
    return file


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, kept: Path) -> Path:
    use_stand_ins(monkeypatch)
    monkeypatch.setattr(judge, "STEPS", 120)
    monkeypatch.setattr(judge, "BATCH", 32)
    monkeypatch.setattr(scorer, "decode_again", lambda model, pictures: pictures)
    return kept


def test_the_classifier_learns_and_is_kept(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "train_classifier", lambda *_: pytest.fail("it was kept"))
    network = judge.obtain_classifier(Path(), stand_ins, lambda text: None)
    pictures, targets = judge.held_out_renderings(Path())
    assert judge.accuracy(judge.classify(network, pictures), targets) == {"subject": 1.0, "look": 1.0, "ground": 1.0}


@pytest.mark.parametrize("spoilt", ["another recipe", "broken"])
def test_a_kept_classifier_that_does_not_fit_is_not_used(
    stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: str
) -> None:
    file = tmp_path / "kept.safetensors"
    file.write_bytes(stand_ins.read_bytes() if spoilt == "another recipe" else b"no tensors")
    monkeypatch.setattr(judge, "STEPS", 1)
    said: list[str] = []
    judge.obtain_classifier(Path(), file, said.append)
    assert judge._read_kept(file, "unknown") is None
    assert file.stat().st_size > 1000


def perfect(prompts: list[Prompt]) -> torch.Tensor:
    """Paint what was asked for, from the sprites."""
    sprites, labels = judge.load_sprite_tensors(Path())
    colours = torch.tensor(list(GROUNDS.values())).float() / 255
    rows = [labels.tolist().index([prompt.subject, prompt.look]) for prompt in prompts]
    grounds = colours[[prompt.ground for prompt in prompts]]
    return judge.compose(sprites[rows], grounds, torch.Generator().manual_seed(3))


def test_a_perfect_painter_scores_full_marks_and_one_that_paints_one_thing_few(stand_ins: Path, tmp_path: Path) -> None:
    prompts = make_prompts(NAMES, 18)
    good: Any = scorer.bench(
        Path(), Path(), 18, out=tmp_path, classifier=stand_ins, painter=lambda texts: perfect(prompts)
    )
    assert good["shares"]["all pictures"]["all three"] == 1.0
    assert json.loads((tmp_path / "score.json").read_text(encoding="utf-8")) == good
    assert (tmp_path / "sheet.png").is_file()
    same: Any = scorer.bench(
        Path(), Path(), 18, classifier=stand_ins, painter=lambda texts: perfect(prompts[:1]).expand(18, -1, -1, -1)
    )
    expected = sum(prompt.subject == prompts[0].subject for prompt in prompts) / 18
    assert same["shares"]["all pictures"]["subject"] == pytest.approx(expected, abs=1e-3)
    assert same["shares"]["all pictures"]["all three"] < 0.2


def test_the_sheet_keeps_within_its_size(tmp_path: Path) -> None:
    noise = torch.rand(16, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    sheet = draw_sheet(noise, ["a long prompt that needs more than one line"] * 16)
    assert sheet.size == (8 * 64, 2 * (64 + 36))
    save_sheet(sheet, tmp_path / "sheet.png", limit=55_000)
    assert (tmp_path / "sheet.png").stat().st_size <= 55_000


def test_the_command_prints_shares_or_json(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(folder=Path())
    family = SimpleNamespace(resolve=lambda model, offline: found)
    modules = {
        "scorer": scorer,
        "family": SimpleNamespace(Family=lambda: family),
        "sprites": SimpleNamespace(core_numbers=lambda: (0, 1, 2), check_packages=lambda packages: None),
    }
    monkeypatch.setattr(discover, "load", lambda package, name, part="": modules[part])
    monkeypatch.setattr(scorer, "paint", lambda model, texts, sampling, tell: perfect(make_prompts(NAMES, len(texts))))
    command = ["bench", "starter", "--pictures", "6", "--packages", ".", "--classifier", str(stand_ins)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "100.0%" in shown.stdout
    document = json.loads(CliRunner().invoke(app, [*command, "--json", "--guidance", "2.5"]).stdout)
    assert document["shares"]["all pictures"]["pictures"] == 6
    assert document["sampling"]["guidance"] == 2.5


def test_the_command_says_how_to_get_the_packages(cli: Any, tmp_path: Path) -> None:
    result = cli("bench", "starter", "--packages", tmp_path / "none")
    assert result.returncode == 64
    assert "npm install --prefix" in result.stderr
