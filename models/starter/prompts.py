"""The fixed list of prompts by which the starter model is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.starter.captions import FULL, fill
from models.starter.data import unseen_ground
from models.starter.pictures import GROUNDS
from models.starter.sprites import LOOKS

STRIDE = 47
"""Steps through the subjects in such strides, so that neighbours in the list differ in kind."""


@dataclass(frozen=True)
class Prompt:
    """What is asked for: the text and the three class numbers; ``seen`` if training had the combination."""

    text: str
    subject: int
    look: int
    ground: int
    seen: bool


def make_prompts(names: Sequence[str], count: int) -> list[Prompt]:
    """Return ``count`` prompts: another subject each, looks and sentence forms in turn.

    Every other prompt asks for the one ground on which training never showed this subject in this look.
    """
    grounds = list(GROUNDS)
    prompts: list[Prompt] = []
    for number in range(count):
        turn, subject = number // 2, number * STRIDE % len(names)
        look = (number + number // len(names)) % len(LOOKS)
        seen = number % 2 == 0
        away = 1 + turn % (len(grounds) - 1) if seen else 0
        ground = (unseen_ground(subject, look) + away) % len(grounds)
        text = fill(FULL[turn % len(FULL)], names[subject], LOOKS[look], grounds[ground])
        prompts.append(Prompt(text, subject, look, ground, seen))
    return prompts
