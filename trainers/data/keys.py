"""Names of cache entries: a digest of everything that changes an entry's bytes, and of nothing else. Free of torch.

The run's seed, rates and dropout are not in a key, so changing them re-encodes nothing. A picture that was edited,
another size, crop, mirror, background, mask, encoder or precision makes another key, so nothing stale is ever found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from trainers.core import digest, random
from trainers.core.facts import TextLimit

from .buckets import Fit
from .config import DataConfig
from .decode import DECODER
from .items import Item

LATENT_FORMAT = 1
TEXT_FORMAT = 1


@dataclass(frozen=True)
class Variant:
    """One way to show a picture: cut at `crop` (top, left) of the scaled picture, then mirrored when `flip`."""

    crop: tuple[int, int]
    flip: bool

    def corner(self, fit: Fit) -> tuple[int, int]:
        """(top, left) of the cut as seen in the scaled and, when `flip`, mirrored picture."""
        top, left = self.crop
        return (top, fit.slack[1] - left) if self.flip else (top, left)


@dataclass(frozen=True)
class LatentRule:
    """How pictures become latents. `vae` is the digest of the encoder's weights, `dtype` the precision it runs in."""

    family: str
    vae: str
    dtype: str = "float32"
    background: str = "white"
    flip: bool = False
    crop: Literal["center", "random"] = "center"
    crop_variants: int = 1

    def variants(self, item: Item, fit: Fit) -> tuple[Variant, ...]:
        """All ways to show a picture, at least one. Random cuts depend on the picture only: every run shares them."""
        crops = [fit.crop]
        if self.crop == "random":
            draws = [random.generator(0, "crop", item.digest, number) for number in range(self.crop_variants)]
            crops = [(int(draw.integers(fit.slack[0] + 1)), int(draw.integers(fit.slack[1] + 1))) for draw in draws]
        crops = list(dict.fromkeys(crops))
        return tuple(Variant(crop, flip) for crop in crops for flip in ((False, True) if self.flip else (False,)))

    def key(self, item: Item, fit: Fit, variant: Variant) -> str:
        """The name of one latent (and its mask)."""
        return digest.of_json(
            {
                "kind": "latent",
                "format": LATENT_FORMAT,
                "decoder": DECODER,
                "family": self.family,
                "vae": self.vae,
                "dtype": self.dtype,
                "picture": item.digest,
                "background": self.background if item.has_alpha else None,
                "mask": item.mask if item.mask is None or item.mask == "alpha" else item.mask_digest,
                "bucket": fit.bucket,
                "resized": fit.resized,
                "crop": variant.crop,
                "flip": variant.flip,
            }
        )


def latent_rule(config: DataConfig, *, family: str, vae: str, dtype: str = "float32") -> LatentRule:
    """Take from a [data] section what changes latents."""
    return LatentRule(family, vae, dtype, config.background, config.flip, config.crop, config.crop_variants)


def without_variants(rule: LatentRule) -> LatentRule:
    """The rule for pictures that are only measured: one upright, centred view each."""
    return replace(rule, flip=False, crop="center", crop_variants=1)


@dataclass(frozen=True)
class TextRule:
    """How captions become conditions. `encoders` is the digest of the text encoders' weights and tokenizers."""

    family: str
    encoders: str
    limits: tuple[TextLimit, ...] = ()
    dtype: str = "float32"

    def key(self, caption: str | None) -> str:
        """The name of the condition of a caption; None is the null condition, which a family makes in its own way."""
        return digest.of_json(
            {
                "kind": "text",
                "format": TEXT_FORMAT,
                "family": self.family,
                "encoders": self.encoders,
                "limits": [[limit.encoder, limit.tokens, limit.special] for limit in self.limits],
                "dtype": self.dtype,
                "caption": caption,
            }
        )
