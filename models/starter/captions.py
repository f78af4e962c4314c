"""Writes the captions of one picture: many patterns, so that no sentence form is needed."""

from __future__ import annotations

import random

LOOK_WORDS: dict[str, tuple[str, ...]] = {
    "3d": ("3d", "3d", "3d rendered", "glossy 3d"),
    "cartoon": ("cartoon", "cartoon", "cartoon style", "hand-drawn cartoon"),
    "flat": ("flat", "flat", "flat design", "flat vector"),
}
"""Style words of a look; the first one is the usual one."""

PLURALS = frozenset({"jeans", "glasses", "sunglasses", "headphones", "scissors", "cherries", "grapes",
                     "blueberries", "french fries", "pancakes", "brown leaves", "fallen leaves"})
UNCOUNTED = frozenset({"corn", "broccoli", "bread", "bacon", "cheese", "popcorn", "sushi", "spaghetti",
                       "noodle soup", "pizza", "pudding", "saturn", "planet earth"})

FULL = (
    "a {style} {name} on a {ground} background",
    "{a_name} on a {ground} background, {style}",
    "{style}, {name}, {ground} background",
    "a {style} picture of {a_name} on {ground}",
    "{a_name} in {style} style, {ground} background",
    "{name}, {style}, {ground}",
    "{style} {name} on {ground}",
    "an emoji of {a_name}, {style}, on a plain {ground} background",
    "{ground} background, {style} {name}",
    "a {ground} picture with a {style} {name}",
    "{name} emoji, {style}, {ground} background",
    "a {style} icon of {a_name} in front of a {ground} background",
    "{a_name}, {ground} background, {style} look",
    "picture of {a_name} on a {ground} ground in {style} style",
)
NO_STYLE = (
    "{a_name} on a {ground} background",
    "{name}, {ground} background",
    "a picture of {a_name} on {ground}",
)
NO_GROUND = ("a {style} {name}", "{name}, {style}", "{a_name}, {style} style")
BARE = ("{a_name}", "{name}")
LINES = 14


def with_article(name: str) -> str:
    """Return the name with "a" or "an" where English wants one."""
    if name in PLURALS or name in UNCOUNTED:
        return name
    sound = "an" if name[0] in "aei" or name.startswith(("o", "umbrella")) else "a"
    return f"{sound} {name}"


def fill(pattern: str, name: str, style: str, ground: str) -> str:
    """Return one caption of a pattern, with "an" before orange."""
    text = pattern.format(name=name, a_name=with_article(name), style=style, ground=ground)
    return ("an" + text[1:] if text.startswith("a orange") else text).replace(" a orange", " an orange")


def write_captions(names: tuple[str, ...], look: str, ground: str, rng: random.Random) -> list[str]:
    """Return ``LINES`` distinct captions; about one in seven leaves out the style or the ground."""
    patterns = [*rng.sample(FULL, LINES - 2), rng.choice(NO_STYLE)]
    patterns.append(rng.choice(NO_GROUND if rng.random() < 0.8 else BARE))
    lines: list[str] = []
    for index, pattern in enumerate(patterns):
        name = names[index % len(names)] if len(names) > 1 and rng.random() < 0.7 else names[0]
        style = rng.choice(LOOK_WORDS[look]) if "{style} style" not in pattern else LOOK_WORDS[look][0]
        if pattern.endswith("look"):
            style = LOOK_WORDS[look][0]
        text = fill(pattern, name, style, ground)
        if text not in lines:
            lines.append(text)
    return lines
