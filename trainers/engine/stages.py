"""What must be ready before the first step: cached latents and encoded captions.

Each stage loads the part of the model it needs, only when something is missing from the cache, so that text encoders
and VAE never lie beside the optimizer. A stop is obeyed in every stage, and what was made is kept.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from trainers.core.batch import Condition
from trainers.core.digest import of_json
from trainers.core.family import Family, Weights
from trainers.data.cache import Cache
from trainers.data.encode import Filled, Watch, fill_latents, fill_text
from trainers.data.items import Item
from trainers.data.keys import LatentRule, TextRule, latent_rule, without_variants
from trainers.engine.planning import Prepared
from trainers.engine.signals import StopRequest, stop_requested
from trainers.memory.collector import collector_paused
from trainers.memory.device import Device
from trainers.presets.preset import Preset
from trainers.rundir.events import EventLog
from trainers.rundir.layout import RunDir

_TELL_SECONDS = 1.0


@dataclass
class Stages:
    """The surroundings that every stage needs."""

    family: Family
    weights: Weights
    device: Device
    cache: Cache
    run: RunDir
    events: EventLog
    stop: StopRequest
    say: Callable[[str], None]

    def load(self, part: str) -> nn.Module:
        """Load one part in float32, frozen and in evaluation mode."""
        with collector_paused():  # the first network of a kind brings its library
            module = self.family.load(part, self.weights, dtype=torch.float32, device=self.device.device)
        if part == "vae" and self.device.kind in ("cuda", "cpu"):  # its convolutions take a fifth less time so
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module.requires_grad_(False).eval()

    def watch(self, what: str) -> Watch:
        """Tell how far a stage is, about once a second, and obey requests to stop."""
        last = 0.0

        def tell(done: int, total: int, name: str) -> None:
            nonlocal last
            if time.monotonic() - last >= _TELL_SECONDS:
                last = time.monotonic()
                self.events.write("status", state="preparing", message=f"{what} {done}/{total} {name}".strip())

        return Watch(tell, lambda: stop_requested(self.stop, self.run))


def latents_of(stages: Stages, preset: Preset) -> LatentRule:
    """How this run's pictures become latents."""
    return latent_rule(preset.data, family=stages.weights.facts.name, vae=_digest(stages.weights, "vae"))


def texts_of(stages: Stages) -> TextRule:
    """How this run's captions become conditions."""
    facts = stages.weights.facts
    return TextRule(facts.name, _digest(stages.weights, "text"), facts.text_limits)


def encode_pictures(stages: Stages, prepared: Prepared, preset: Preset) -> None:
    """Make the latents that the cache lacks, of training pictures in all variants and of held-out ones upright."""
    rule = latents_of(stages, preset)
    began = time.monotonic()

    def fill(items: Sequence[Item], rule: LatentRule) -> Filled:
        return fill_latents(
            items, prepared.fits, rule, stages.cache, stages.family, lambda: stages.load("vae"), stages.watch("latents")
        )

    done = [fill(prepared.training, rule), fill(prepared.held_out, without_variants(rule))]
    _say_filled(stages, "latents", done, time.monotonic() - began)
    if any(part.made for part in done):  # otherwise nothing was loaded
        release(stages.device)


def encode_captions(
    stages: Stages, prepared: Prepared, preset: Preset, prompts: Iterable[str]
) -> Mapping[str, Condition]:
    """Make the conditions that the cache lacks; returns those of `prompts`, which previews need."""
    rule = texts_of(stages)
    wanted = {*prompts, preset.preview.negative}
    captions = set(wanted)
    if not prepared.plan.text_in_step:
        captions.update(caption for item in (*prepared.training, *prepared.held_out) for caption in item.captions)
    began = time.monotonic()
    done = fill_text(captions, rule, stages.cache, stages.family, lambda: stages.load("text"), stages.watch("captions"))
    _say_filled(stages, "captions", [done], time.monotonic() - began)
    if done.made:
        release(stages.device)
    found = {prompt: stages.cache.get(rule.key(prompt)) for prompt in wanted}
    return {prompt: condition for prompt, condition in found.items() if condition is not None}


def release(device: Device) -> None:
    """Give memory of parts that are gone back to the device."""
    gc.collect()
    if device.kind == "cuda":
        torch.cuda.empty_cache()


def _say_filled(stages: Stages, what: str, done: Sequence[Filled], seconds: float) -> None:
    made, reused = sum(part.made for part in done), sum(part.reused for part in done)
    speed = f" ({made / seconds:.1f} a second)" if made and seconds > 0.5 else ""
    stages.say(f"{what}: {made} encoded{speed}, {reused} found in the cache")


def _digest(weights: Weights, part: str) -> str:
    """Name the content of one part for cache keys; another VAE beside the model makes other latents."""
    other_vae = str(weights.vae) if part == "vae" and weights.vae else ""
    return of_json({"weights": weights.digest, "vae": other_vae, "part": part})
