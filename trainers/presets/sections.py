"""The tables of a preset that belong to the suite itself; the others are found (see `plugins`).

Nothing here says how a thing is done, only what was asked for. Lengths and periods stay text as people wrote it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainers.core.facts import PredictionKind
from trainers.core.plugin import Config, option

from .texts import Duration, FolderName, Memory, Part, Period

Precision = Literal["auto", "fp32", "bf16", "fp16"]


class Run(Config):
    """What this run is called, how long it lasts and where its results go."""

    name: FolderName | None = option(
        None, "Name of the run and of its folder. Left out: the name of the preset file.", examples=["red-chair"]
    )
    seed: int = option(
        1, "Start of all randomness. The same seed gives the same run on any machine.", unit="any whole number",
        ge=0, le=2**63 - 1,
    )  # fmt: skip
    length: Duration = option(
        help="How long to train: steps, samples or epochs. A bare number counts steps.",
        unit="length", examples=["2000 steps", "50k samples", "10 epochs"],
    )  # fmt: skip
    out: str | None = option(
        None, 'Folder in which run folders are made. Left out: "runs".', advanced=True, examples=["/data/runs"],
    )  # fmt: skip


class Model(Config):
    """The model to start from."""

    family: str = option(help="Kind of model; a folder in models/.", examples=["sd15", "sdxl"])
    weights: str | None = option(
        None,
        "Folder, single file, hub id or builtin:NAME of the weights to start from. Left out: the family's usual ones.",
        examples=["models/my-model.safetensors", "builtin:starter"],
    )
    vae: str | None = option(None, "Folder, file or hub id of another VAE. Left out: the model's own.", advanced=True)
    prediction: PredictionKind | None = option(
        None, "What these weights predict, for files that do not say so. Left out: as the files or the family say.",
        advanced=True,
    )  # fmt: skip
    offline: bool = option(False, "Never use the network; every file must be on this machine already.", advanced=True)


class Schedule(Config):
    """The learning rate over the run, as a share of the rate in [optimizer]."""

    kind: Literal["constant", "linear", "cosine", "polynomial"] = option(
        "constant", "Shape of the curve after the warm-up: level, or falling to the floor."
    )
    warmup: Part = option(
        "0 steps", "The rate grows from zero to its peak during this part of the run.", unit="length",
        examples=["100 steps", "5 %"],
    )  # fmt: skip
    cycles: int = option(
        1, "How often a cosine falls; above 1 it restarts at the peak each time.", unit="times", advanced=True,
        ge=1, le=1000,
    )  # fmt: skip
    power: float = option(
        1.0, "Exponent of the polynomial; 1 is a straight line.", unit="exponent", advanced=True, gt=0, le=10
    )
    floor: float = option(0.0, "Where the curve ends.", unit="share of the peak, 0..1", advanced=True, ge=0, le=1)


class Ema(Config):
    """A slow average of the trained weights, used for previews, validation and exports instead of the newest ones."""

    enabled: bool = option(False, "Keep the average. Costs one more copy of the trained weights.")
    decay: float = option(
        0.999, "Share of the average that stays at each step. Short runs want less, long runs more.",
        unit="share, 0..1", examples=[0.99, 0.999, 0.9999], ge=0, lt=1,
    )  # fmt: skip
    warmup: bool = option(
        True, "Start with a small share, so that the first weights are soon forgotten.", advanced=True
    )


class Compute(Config):
    """Limits and wishes about the machine. They change speed and memory, not what is trained."""

    device: str = option(
        "auto", "Where to compute; auto takes the best there is.", examples=["auto", "cuda", "cuda:1", "mps", "cpu"],
        pattern=r"^(auto|cpu|mps|(cuda|xpu)(:\d+)?)$",
    )  # fmt: skip
    precision: Precision = option("auto", "Number format of the computation; auto takes bf16 where it is fast.")
    weights_precision: Precision = option(
        "auto", "Number format in which frozen weights are kept; auto follows precision.", advanced=True
    )
    micro_batch: Literal["auto"] | Annotated[int, Field(ge=1, le=4096)] = option(
        "auto", "Samples computed at once. Smaller needs less memory and gives the same result.", unit="samples"
    )
    gradient_checkpointing: Literal["auto"] | bool = option(
        "auto", "Compute activations twice instead of keeping them: less memory, about a quarter slower."
    )
    attention: Literal["auto", "sdpa", "eager", "xformers"] = option(
        "auto", "Implementation of attention; auto takes PyTorch's own.", advanced=True
    )
    channels_last: Literal["auto"] | bool = option(
        "auto", "Memory order of convolutions; auto takes the faster one.", advanced=True
    )
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = option(
        "auto", "Processor threads of the computation.", unit="threads", advanced=True
    )
    memory_limit: Memory | None = option(
        None, "Use at most this much memory of the device. Left out: what is free.", unit="bytes",
        examples=["12 GB", "23.5 GiB"],
    )  # fmt: skip


class Step(Config):
    """Safety of each update."""

    clip_norm: float = option(
        1.0, "Gradients longer than this are shortened to it; 0 switches it off.", unit="norm", ge=0, le=1e6
    )
    nan_limit: int = option(
        5, "Stop after this many updates in a row that had to be left out because a number was not finite.",
        unit="steps", advanced=True, ge=1, le=10000,
    )  # fmt: skip


class Preview(Config):
    """Pictures painted during the run, always from the same prompts and seeds."""

    prompts: list[str] = option(help="One picture is painted of each.", default_factory=list, max_length=64)
    negative: str = option("", "What previews should not show.")
    every: Period = option("100 steps", 'How often; or "never".', unit="length", examples=["100 steps", "10 %"])
    insert_trigger: bool = option(
        True,
        "Put the trigger word into every prompt that lacks it, so that previews ask for what is trained.",
        advanced=True,
    )
    at_start: bool = option(True, "Paint before the first step, to see what the model knew already.")
    at_end: bool = option(True, "Paint after the last step.")
    steps: int = option(25, "Sampling steps of one picture.", unit="steps", ge=1, le=1000)
    guidance: float = option(7.5, "How closely to follow the prompt; 1 is none.", unit="scale", ge=0, le=100)
    seed: int = option(
        1, "Seed of the first picture; the next ones count on.", unit="any whole number", ge=0, le=2**63 - 1
    )
    size: Annotated[list[Annotated[int, Field(ge=8, le=8192)]], Field(min_length=2, max_length=2)] | None = option(
        None, "Width and height. Left out: the size the family was made for.", unit="pixels", examples=[[512, 512]]
    )
    sampler: Literal["auto", "ddim", "euler", "dpmpp_2m", "unipc"] = option(
        "auto", "Way of sampling; auto takes the one that comes with the model.", advanced=True
    )


class Validation(Config):
    """Loss on pictures that are held out of the training (see the validation settings in [data])."""

    every: Period = option("100 steps", 'How often it is measured; or "never".', unit="length", examples=["100 steps"])
    times: int = option(
        4, "Noise levels measured per picture. They and the noise are the same each time.", unit="per picture",
        advanced=True, ge=1, le=1000,
    )  # fmt: skip


class Checkpoint(Config):
    """Saved states from which a run goes on exactly as if it had not been stopped."""

    every: Period = option(
        "500 steps", 'How often to save; or "never": only at the end or when stopped.', unit="length"
    )
    minutes: float | None = option(
        None, "Save as well when this long has passed since the last one.", unit="minutes", gt=0, le=100000
    )
    keep: int = option(2, "How many of the newest stay on the disk.", unit="checkpoints", ge=2, le=10000)


class Export(Config):
    """The finished files."""

    layouts: list[str] | None = option(
        None, "Which programs the files are for. Left out: every layout of the family.",
        examples=[["kohya", "diffusers"]], min_length=1,
    )  # fmt: skip
    precision: Literal["fp16", "bf16", "fp32"] = option("fp16", "Number format of the exported weights.")
    title: str = option("", "Title written into the files. Left out: the name of the run.")
    author: str = option("", "Author written into the files.")
    description: str = option("", "A sentence about the model, written into the files.", advanced=True)
    licence: str = option("", "Licence of the result, written into the files.", advanced=True, examples=["CC-BY-4.0"])


class Logging(Config):
    """What is written down while training."""

    every: int = option(1, "Write a metric each so many steps.", unit="steps", ge=1, le=100000)
    tensorboard: bool = option(True, "Write logs for TensorBoard beside the run's own events.")
