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


def make_prompts(names: Sequence[str], count: int, among: Sequence[int] | None = None) -> list[Prompt]:
    """Return ``count`` prompts: another subject each, looks and sentence forms in turn.

    Every other prompt asks for the one ground on which training never showed this subject in this look. ``among`` holds
    the numbers of the subjects that may be asked for; None is all of them.
    """
    grounds = list(GROUNDS)
    chosen = range(len(names)) if among is None else among
    prompts: list[Prompt] = []
    for number in range(count):
        turn, subject = number // 2, chosen[number * STRIDE % len(chosen)]
        look = (number + number // len(chosen)) % len(LOOKS)
        seen = number % 2 == 0
        away = 1 + turn % (len(grounds) - 1) if seen else 0
        ground = (unseen_ground(subject, look) + away) % len(grounds)
        text = fill(FULL[turn % len(FULL)], names[subject], LOOKS[look], grounds[ground])
        prompts.append(Prompt(text, subject, look, ground, seen))
    return prompts
