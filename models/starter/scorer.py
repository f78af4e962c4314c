"""Scores a starter model: does a classifier find in each picture what the prompt asked for?

``python -m models.starter.scorer --model DIR --packages DIR`` samples a fixed list of prompts through
diffusers' own pipeline and prints one JSON document.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from diffusers import AutoencoderKL, StableDiffusionPipeline
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.starter import classifier as judge
from models.starter.captions import FULL, with_article
from models.starter.data import unseen_ground
from models.starter.pictures import GROUNDS
from models.starter.sprites import LOOKS, load_subjects

GUIDANCE, STEPS, BATCH = 4.0, 24, 20


@dataclass(frozen=True)
class Prompt:
    """What is asked for: the text and the three class numbers; ``seen`` if training had the combination."""

    text: str
    subject: int
    look: int
    ground: int
    seen: bool


def make_prompts(packages: Path, count: int) -> list[Prompt]:
    """Return the fixed list: subjects in turn over looks and grounds, every other combination unseen."""
    subjects, grounds = load_subjects(packages), list(GROUNDS)
    prompts: list[Prompt] = []
    for number in range(count):
        subject = number * 47 % len(subjects)
        look = (number + number // len(subjects)) % len(LOOKS)
        unseen = unseen_ground(subject, look)
        seen = number % 2 == 0
        ground = (unseen + 1 + number // 2 % (len(grounds) - 1)) % len(grounds) if seen else unseen
        name = subjects[subject].name
        text = FULL[number % len(FULL)].format(
            name=name, a_name=with_article(name), style=LOOKS[look], ground=grounds[ground]
        )
        prompts.append(Prompt(text.replace("a orange", "an orange"), subject, look, ground, seen))
    return prompts


@torch.no_grad()
def generate(model_dir: Path, texts: list[str], guidance: float = GUIDANCE, steps: int = STEPS) -> Tensor:
    """Sample one picture a prompt with seed = its number; ``[N, 3, 128, 128]`` in [0, 1]."""
    pipeline = StableDiffusionPipeline.from_pretrained(model_dir, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    chunks: list[Tensor] = []
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        seeds = [torch.Generator().manual_seed(start + offset) for offset in range(len(part))]
        chunks.append(
            pipeline(
                part, guidance_scale=guidance, num_inference_steps=steps, generator=seeds, output_type="pt"
            ).images
        )
    return torch.cat(chunks)


@torch.no_grad()
def roundtrip(model_dir: Path, pictures: Tensor) -> Tensor:
    """Encode and decode ``[N, 3, 128, 128]`` pictures in [0, 1] with the model's autoencoder."""
    vae = AutoencoderKL.from_pretrained(Path(model_dir) / "vae", torch_dtype=torch.float32)
    chunks = [vae.decode(vae.encode(c * 2 - 1).latent_dist.mean).sample for c in pictures.split(16)]
    return (torch.cat(chunks) / 2 + 0.5).clamp(0, 1)


def score(network: judge.Classifier, pictures: Tensor, prompts: list[Prompt]) -> dict[str, object]:
    """Compare what the classifier sees with what was asked; shares are between 0 and 1."""
    guesses = judge.classify(network, pictures)
    targets = {name: torch.tensor([getattr(p, name) for p in prompts]) for name in judge.HEADS}
    right = {name: guesses[name] == targets[name] for name in judge.HEADS}
    right["all"] = right["subject"] & right["look"] & right["ground"]
    groups = {"": torch.ones(len(prompts), dtype=torch.bool)}
    groups["seen "] = torch.tensor([p.seen for p in prompts])
    groups["unseen "] = ~groups["seen "]
    for number, look in enumerate(LOOKS):
        groups[f"{look} "] = targets["look"] == number
    shares = {
        f"{group}{name}": round(hits[mask].float().mean().item(), 4)
        for group, mask in groups.items()
        for name, hits in right.items()
        if mask.any()
    }
    wrong = [prompts[i].text for i in range(len(prompts)) if not right["subject"][i]]
    return {"pictures": len(prompts), "shares": shares, "wrong subject": wrong}


def obtain_classifier(packages: Path, cache: Path | None) -> judge.Classifier:
    """Load the classifier from ``cache`` or train it and, if a cache is named, keep it there."""
    if cache is not None and cache.is_file():
        state = load_file(cache)
        network = judge.Classifier(len(state["heads.subject.bias"]))
        network.load_state_dict(state)
        return network.eval()
    network = judge.train_classifier(packages)
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        save_file(network.state_dict(), cache)
    return network


def write_sheet(pictures: Tensor, path: Path, columns: int = 20) -> None:
    """Write a contact sheet of ``[N, 3, Y, X]`` pictures in [0, 1]."""
    count, _, height, width = pictures.shape
    sheet = Image.new("RGB", (columns * width, (count + columns - 1) // columns * height))
    for number, picture in enumerate((pictures * 255).round().byte().permute(0, 2, 3, 1).numpy()):
        sheet.paste(Image.fromarray(picture), (number % columns * width, number // columns * height))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def bench(
    model_dir: Path | str,
    packages_dir: Path | str,
    count: int = 200,
    out: Path | str | None = None,
    *,
    cache: Path | str | None = None,
    guidance: float = GUIDANCE,
    steps: int = STEPS,
) -> dict[str, object]:
    """Score a model folder; with ``out`` also write ``score.json`` and ``sheet.png`` there.

    ``cache`` names a file in which the trained classifier is kept between calls.
    """
    began = time.monotonic()
    packages, model = Path(packages_dir), Path(model_dir)
    network = obtain_classifier(packages, None if cache is None else Path(cache))
    renderings, targets = judge.held_out_renderings(packages)
    prompts = make_prompts(packages, count)
    sampling = time.monotonic()
    pictures = generate(model, [p.text for p in prompts], guidance, steps)
    report: dict[str, object] = {
        **score(network, pictures, prompts),
        "guidance": guidance,
        "steps": steps,
        "seconds sampling": round(time.monotonic() - sampling, 1),
        "classifier on held-out renderings": judge.accuracy(judge.classify(network, renderings), targets),
        "classifier on decoded renderings": judge.accuracy(
            judge.classify(network, roundtrip(model, renderings)), targets
        ),
        "seconds": round(time.monotonic() - began, 1),
    }
    if out is not None:
        folder = Path(out)
        write_sheet(pictures, folder / "sheet.png")
        document = {**report, "prompts": [asdict(p) for p in prompts]}
        (folder / "score.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return report


def main(
    model: Annotated[Path, typer.Option(help="model folder in diffusers' layout")],
    packages: Annotated[Path, typer.Option(help="folder into which the npm packages were installed")],
    count: Annotated[int, typer.Option(help="number of pictures")] = 200,
    out: Annotated[Path | None, typer.Option(help="folder for score.json and sheet.png")] = None,
    cache: Annotated[Path | None, typer.Option(help="file that keeps the trained classifier")] = None,
    guidance: Annotated[float, typer.Option(help="classifier-free guidance")] = GUIDANCE,
    steps: Annotated[int, typer.Option(help="sampling steps")] = STEPS,
) -> None:
    """Score a starter model and print the report as JSON."""
    report = bench(model, packages, count, out, cache=cache, guidance=guidance, steps=steps)
    typer.echo(json.dumps(report, indent=1))


if __name__ == "__main__":
    typer.run(main)
