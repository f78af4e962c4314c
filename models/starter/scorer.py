"""Scores a starter model: does a classifier find in each picture what the prompt asked for?

``trainers bench starter`` calls ``bench``. The pictures come from diffusers' own pipeline, the prompts from
``prompts.py`` and their seeds are their numbers, so the same model always gets the same score.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from models.starter import classifier as judge
from models.starter.painting import Sampling, decode_again, draw_sheet, paint, save_sheet
from models.starter.pictures import GROUNDS
from models.starter.prompts import Prompt, make_prompts
from models.starter.sprites import LOOKS, check_packages, load_subjects

Say = Callable[[str], None]
Paint = Callable[[list[str]], Tensor]
SHEET = 32
"""So many of the pictures, the first ones, are shown on the sheet."""
CLASSIFIER_FILE = "classifier.safetensors"


def _silent(text: str) -> None:
    """Say nothing."""
    del text


def choose_sampling(guidance: float | None, steps: int | None) -> Sampling:
    """Return the recommended settings with what is given in their place."""
    given = {name: value for name, value in (("guidance", guidance), ("steps", steps)) if value is not None}
    return replace(Sampling(), **given)


def score(guesses: dict[str, Tensor], prompts: Sequence[Prompt], names: Sequence[str]) -> dict[str, object]:
    """Compare class numbers ``[N]`` per head with what was asked; shares are between 0 and 1."""
    targets = {head: torch.tensor([getattr(p, head) for p in prompts]) for head in judge.HEADS}
    right = {head: guesses[head] == targets[head] for head in judge.HEADS}
    right["all three"] = torch.stack([right[head] for head in judge.HEADS]).all(0)
    seen = torch.tensor([p.seen for p in prompts])
    groups = {"all pictures": torch.ones_like(seen), "seen combinations": seen, "unseen combinations": ~seen}
    groups |= {f"look {look}": targets["look"] == number for number, look in enumerate(LOOKS)}
    shares = {
        group: {"pictures": int(mask.sum()), **{what: _share(hits[mask]) for what, hits in right.items()}}
        for group, mask in groups.items()
        if mask.any()
    }
    wrong = [_describe(guesses, i, prompts[i], names) for i in range(len(prompts)) if not right["all three"][i]]
    return {"pictures": len(prompts), "shares": shares, "margin": _margin(right), "wrong": wrong}


def _share(hits: Tensor) -> float:
    return round(hits.float().mean().item(), 4)


def _margin(right: dict[str, Tensor]) -> dict[str, list[float]]:
    """95 % confidence intervals of the shares, after Wilson (1927)."""
    z, intervals = 1.96, {}
    for what, hits in right.items():
        count, share = len(hits), hits.float().mean().item()
        middle = (share + z * z / (2 * count)) / (1 + z * z / count)
        half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
        intervals[what] = [round(middle - half, 4), round(middle + half, 4)]
    return intervals


def _describe(guesses: dict[str, Tensor], number: int, prompt: Prompt, names: Sequence[str]) -> dict[str, object]:
    """One picture that is not as asked: its number, its prompt, and what the classifier sees instead."""
    words = {"subject": names, "look": LOOKS, "ground": list(GROUNDS)}
    found = {head: int(guesses[head][number]) for head in judge.HEADS}
    seen = {head: words[head][found[head]] for head in judge.HEADS if found[head] != getattr(prompt, head)}
    return {"number": number, "prompt": prompt.text, "seen as": seen}


def bench(  # noqa: PLR0913 - what is measured, with what, and where the answers go
    model: Path,
    packages: Path,
    pictures: int = 200,
    *,
    sampling: Sampling | None = None,
    out: Path | None = None,
    classifier: Path | None = None,
    say: Say = _silent,
    painter: Paint | None = None,
    among: Sequence[int] | None = None,
) -> dict[str, object]:
    """Score a model folder; with ``out`` also write ``score.json`` and ``sheet.png`` there.

    ``classifier`` is the file that keeps the trained classifier; it lies beside the packages by default. ``painter``
    takes the pipeline's place. ``among`` are the numbers of the subjects that are asked for, all by default; the
    classifier always chooses among all.
    """
    sampling = sampling or Sampling()
    check_packages(packages)
    names = [subject.name for subject in load_subjects(packages)]
    clock = [time.monotonic()]
    network = judge.obtain_classifier(packages, classifier or packages / CLASSIFIER_FILE, say)
    say("measuring the classifier on renderings it has not seen")
    renderings, targets = judge.held_out_renderings(packages)
    quality = {
        "held-out renderings": judge.accuracy(judge.classify(network, renderings), targets),
        "the same through the autoencoder": judge.accuracy(
            judge.classify(network, decode_again(model, renderings)), targets
        ),
    }
    clock.append(time.monotonic())
    prompts = make_prompts(names, pictures, among)
    texts = [prompt.text for prompt in prompts]
    painted = painter(texts) if painter else paint(model, texts, sampling, lambda n: say(f"{n}/{pictures} painted"))
    clock.append(time.monotonic())
    report = {
        **score(judge.classify(network, painted), prompts, names),
        "classifier": quality,
        "sampling": asdict(sampling),
        "seconds": {"classifier": round(clock[1] - clock[0], 1), "painting": round(clock[2] - clock[1], 1)},
    }
    if out is not None:
        save_sheet(draw_sheet(painted[:SHEET], texts[:SHEET]), out / "sheet.png")
        (out / "score.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report
