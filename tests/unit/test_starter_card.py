"""The model card's figures are those that were measured."""

from __future__ import annotations

import json

import pytest

from models.starter.card import BEGIN, END, HOME, describe, fill_card

ROW = {"pictures": 200, "subject": 0.955, "look": 0.99, "ground": 1.0, "all three": 0.94}
REPORT = {
    "pictures": 200,
    "sampling": {"guidance": 4.0, "steps": 24, "rescale": 0.0},
    "shares": {"all pictures": ROW, "seen combinations": {**ROW, "pictures": 100}},
    "margin": {"all three": [0.898, 0.965]},
    "classifier": {"held-out renderings": {"subject": 1.0, "look": 1.0, "ground": 1.0}},
}


def test_the_figures_stand_in_the_card() -> None:
    text = describe(REPORT)
    assert "| all pictures | 200 | 95.5 % | 99.0 % | 100.0 % | 94.0 % |" in text
    assert "89.8 % to 96.5 %" in text
    assert "guidance 4, 24 steps" in text


def test_filling_again_changes_only_the_figures() -> None:
    card = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = fill_card(card, REPORT)
    assert once.startswith(f"before\n{BEGIN}\n200 prompts")
    assert once.endswith(f"{END}\nafter\n")
    assert fill_card(once, REPORT) == once


def test_a_card_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):
        fill_card("no marks", REPORT)


def test_the_card_says_what_was_measured() -> None:
    card, score = (HOME / "README.md").read_text(encoding="utf-8"), HOME / "score.json"
    assert fill_card(card, json.loads(score.read_text(encoding="utf-8"))) == card
    assert (HOME / "sheet.png").stat().st_size <= 400_000
