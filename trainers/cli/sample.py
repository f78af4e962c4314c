"""`trainers sample`: paint pictures with a run, a model, or a LoRA file on its base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainers.cli import _output
from trainers.cli._options import JsonOption, size_pixels

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


def sample(
    source: Annotated[
        str, typer.Argument(metavar="RUN_OR_WEIGHTS", help="A run folder; a LoRA file (with --base); or a model.")
    ],
    prompts: Annotated[list[str], typer.Option("--prompt", help="What to paint. May be repeated.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The picture; several are numbered.")],
    base: Annotated[
        str | None, typer.Option(metavar="WEIGHTS", help="The model under a LoRA file: folder, file, builtin:starter.")
    ] = None,
    family: Annotated[str | None, typer.Option(help="The family of a model; runs and our files say their own.")] = None,
    negative: Annotated[str | None, typer.Option(help="What not to paint.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same picture.")] = 1,
    steps: Annotated[int | None, typer.Option(min=1, help="Denoising steps; left out: as the run's previews.")] = None,
    guidance: Annotated[float | None, typer.Option(min=0, help="How strictly the prompt is followed.")] = None,
    size: Annotated[str | None, typer.Option(metavar="WxH", help="Pixels; left out: the model's own size.")] = None,
    strength: Annotated[float, typer.Option(min=0, help="How strongly what was trained acts; 0 shows the base.")] = 1.0,
    device: Annotated[str, typer.Option(help="auto, cuda, xpu, mps or cpu.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Paint pictures with a run, a model, or a LoRA file on its base."""
    files = picture_files(out.resolve(), len(prompts))
    shape = size_pixels(size) if size else None
    from trainers.engine.sampling import SampleSettings
    from trainers.engine.sampling import sample as paint

    settings = SampleSettings(tuple(prompts), negative, shape, steps, guidance, seed, strength)
    for path, picture in zip(files, paint(source, settings, base=base, family=family, device=device), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    if as_json:
        _output.document({"ok": True, "files": files})
        return
    for path in files:
        typer.echo(str(path))


def picture_files(out: Path, count: int) -> list[Path]:
    """Name the files before anything is loaded: FILE itself for one picture, FILE-1, FILE-2 ... for more."""
    if out.suffix.lower() not in PICTURE_ENDINGS or out.is_dir():
        raise typer.BadParameter(f"{out.name} is no picture file; end it with one of {', '.join(PICTURE_ENDINGS)}")
    return [out] if count == 1 else [out.with_stem(f"{out.stem}-{number}") for number in range(1, count + 1)]
