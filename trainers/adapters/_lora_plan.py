"""Decide which layers get a LoRA, and of what rank and strength."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from trainers.core.errors import Problem, UserError, nearest
from trainers.core.facts import Facts

from ._match import PerName, alike, matches, matches_any

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TEXT_DEFAULT = ("q_proj", "k_proj", "v_proj", "out_proj")
_ALL = "all"


@dataclass(frozen=True)
class Planned:
    """One layer to be adapted: canonical module name, the layer, rank r, and alpha / rank as `factor`."""

    name: str
    layer: nn.Module
    rank: int
    factor: float


@dataclass(frozen=True)
class LayerPlan:
    """The user's choice of layers. `conv_rank` 0 leaves convolutions wider than 1x1 frozen."""

    targets: str | Sequence[str]
    rank: int
    factor: float
    conv_rank: int
    conv_factor: float
    ranks: Mapping[str, int]

    def choose(self, modules: Mapping[str, nn.Module], facts: Facts) -> list[Planned]:
        """Return the layers of `modules` (part -> network) to adapt, in the order of the networks."""
        layers = {name: layer for part, module in modules.items() for name, layer in _layers(part, module)}
        hits = self._targeted(layers, facts)
        planned = list(self._sized({name: layer for name, layer in layers.items() if name in hits}))
        _refuse_odd(planned)
        without = [part for part in modules if not any(item.name.startswith(part + ".") for item in planned)]
        if without:
            raise UserError([self._nothing(part, list(hits)) for part in without])
        if self.conv_rank and not any(_wide(item.layer) for item in planned):
            raise UserError(
                "conv_rank has no effect: the targets hold no convolution wider than 1x1",
                where="train.conv_rank",
                remedy='use targets = "all", or a pattern such as "*.resnets.*.conv1"',
            )
        return planned

    def _targeted(self, layers: Mapping[str, nn.Module], facts: Facts) -> set[str]:
        if isinstance(self.targets, str):
            return self._in_set(self.targets, list(layers), facts)
        missed = [pattern for pattern in self.targets if not any(matches(pattern, name) for name in layers)]
        if missed:
            raise UserError(
                [Problem("train.targets", f'"{glob}" matches no layer', alike(glob, list(layers))) for glob in missed]
            )
        return {name for name in layers if matches_any(self.targets, name)}

    def _in_set(self, targets: str, names: Sequence[str], facts: Facts) -> set[str]:
        """Return the names in a family's named set; "a+b" joins two, "all" without a list of its own is every layer."""
        keys = [targets] if targets in facts.targets else targets.split("+")
        known = [*facts.targets, _ALL]
        unknown = [key for key in keys if key not in known]
        if unknown:
            hint = nearest(unknown[0], known)
            remedy = f'did you mean "{hint}"?' if hint else f"known: {', '.join(dict.fromkeys(known))}"
            raise UserError(
                f'"{unknown[0]}" is no set of layers of {facts.title}',
                where="train.targets",
                remedy=remedy + "; patterns are written as a list",
            )
        everything = _ALL in keys
        image = [pattern for key in keys for pattern in facts.targets.get(key, ("*",))]
        text = ["*"] if everything else (facts.text_targets or _TEXT_DEFAULT)
        return {name for name in names if matches_any(text if name.startswith("text_encoder") else image, name)}

    def _sized(self, layers: Mapping[str, nn.Module]) -> Iterator[Planned]:
        ranks = PerName(self.ranks, "train.ranks")
        ranks.check(list(layers))
        for name, layer in layers.items():
            wide = _wide(layer)
            own = ranks.get(name)
            rank = int(own) if own is not None else (self.conv_rank if wide else self.rank)
            if rank:
                yield Planned(name, layer, rank, self.conv_factor if wide and self.conv_rank else self.factor)

    def _nothing(self, part: str, hits: Sequence[str]) -> Problem:
        matched = sum(name.startswith(part + ".") for name in hits)
        if matched:
            remedy = "convolutions wider than 1x1 need conv_rank; a rank of 0 in train.ranks leaves layers out"
            return Problem("train.targets", f"all {matched} targeted layers of {part} are left out", remedy)
        remedy = f'take "{part}" out of train.parts, or add a pattern'
        return Problem("train.targets", f"nothing in {part} is targeted", remedy)


def _layers(part: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, layer in module.named_modules():
        if isinstance(layer, (nn.Linear, *_CONVS)):
            yield f"{part}.{path}", layer


def _wide(layer: nn.Module) -> bool:
    """Tell whether a layer mixes neighbours: a convolution with a kernel larger than 1."""
    return isinstance(layer, _CONVS) and any(size > 1 for size in layer.kernel_size)


def _refuse_odd(planned: Sequence[Planned]) -> None:
    """Grouped or wrapped-around convolutions have no low-rank twin of the usual form that other programs could load."""
    odd = [
        item.name
        for item in planned
        if isinstance(item.layer, _CONVS) and (item.layer.groups > 1 or item.layer.padding_mode != "zeros")
    ]
    if odd:
        what = "is a grouped or non-zero-padded convolution, which cannot carry a LoRA"
        raise UserError([Problem("train.targets", f"{name} {what}", "choose other targets") for name in odd])
