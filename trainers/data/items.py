"""What a scan finds: pictures that can be trained on, files left out, and everything worth saying about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainers.core.errors import Problem, UserError

CaptionState = Literal["found", "empty", "missing", "made"]
"""How an item came to its captions: read; file empty, or no file, so a rule filled in; made (template, name)."""


@dataclass(frozen=True)
class Item:
    """One picture with its captions. Nothing in it but `path` and a mask's path depends on where the data lie.

    `id` names the sample in every random draw: content digest and concept, "~2" behind the second of equal pictures.
    `size` is (height, width) as seen, after orientation. `captions` are complete (prefix, trigger, ... applied); where
    there are several, one is chosen per visit. `mask` is a file, "alpha", or None; `mask_digest` names its content.
    """

    id: str
    path: Path
    name: str
    digest: str
    concept: int
    role: Literal["train", "class"]
    size: tuple[int, int]
    captions: tuple[str, ...]
    has_alpha: bool = False
    mask: Path | Literal["alpha"] | None = None
    mask_digest: str = ""
    repeats: int = 1
    weight: float = 1.0
    validation: bool = False
    trigger: str | None = None
    caption_state: CaptionState = "found"


@dataclass(frozen=True)
class LeftOut:
    """A file that looked like training data and is not used. `bad` tells that it is broken, not only unwanted."""

    path: Path
    concept: int
    reason: str
    remedy: str = ""
    bad: bool = False


@dataclass(frozen=True)
class Scan:
    """Everything found in the folders of a [data] section, in an order that does not depend on the machine."""

    items: tuple[Item, ...]
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[Problem, ...] = ()
    errors: tuple[Problem, ...] = ()

    def raise_errors(self) -> None:
        """Raise one UserError that holds every problem, or return quietly."""
        if self.errors:
            raise UserError(self.errors)

    @property
    def training(self) -> tuple[Item, ...]:
        """Items that are trained on: subjects and class pictures."""
        return tuple(item for item in self.items if not item.validation)

    @property
    def validation(self) -> tuple[Item, ...]:
        """Items that are held out."""
        return tuple(item for item in self.items if item.validation)
