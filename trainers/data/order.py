"""Which samples make up which optimizer step: a pure function of (items, batch, seed, step).

The list of a step is made for the whole world and then sliced, so the number of ranks and the micro-batch never change
what is trained on. The rule, per epoch:

1. Every training item comes `repeats` times; nothing is dropped and nothing is added.
2. Class ("prior") items, when there are any, come as often as all training items together. They are dealt from one
   endless keyed stream, so over the epochs each is seen equally often (plus or minus one round).
3. A step holds `batch` samples, training and class samples in turn, so the shares differ by one at most.
4. A step is filled from one bucket as long as a bucket can fill it; what is left over in the buckets is joined into
   mixed steps, whose micro-batches are smaller. Only the last step of an epoch may hold fewer than `batch` samples. It
   is averaged over its true number of samples.
5. With fewer samples in an epoch than `batch`, each epoch is one short step.

Across ranks, each bucket of a step is dealt evenly. All ranks run the same number of micro-batches: a rank that would
have one fewer gets a copy of one sample with weight 0, which changes neither the loss nor the gradient.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Literal

from trainers.core import random
from trainers.core.errors import UserError

Bucket = tuple[int, ...]
Role = Literal["train", "class"]
_Deal = tuple[int, int]  # (item index, visit)
_Queues = dict[Bucket, list[_Deal]]
_KEPT_EPOCHS = 2  # prefetching looks from one epoch into the next


@dataclass(frozen=True)
class OrderItem:
    """What the order needs to know of an item. `bucket` is the (height, width) it is trained at, in pixels."""

    id: str
    bucket: Bucket
    repeats: int = 1
    weight: float = 1.0
    role: Role = "train"


@dataclass(frozen=True)
class SampleRef:
    """One sample of a step: item number `index`, seen `visit` times before, its loss counted `weight` times."""

    index: int
    visit: int
    weight: float


class Order:
    """The endless sequence of steps over `items`, by the rules at the top of this file. Safe to use by many threads."""

    def __init__(self, items: Sequence[OrderItem], *, batch: int, seed: int, prior_weight: float = 1.0) -> None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        self.items = tuple(items)
        self.batch = batch
        self._seed = seed
        self._weights = tuple(item.weight * (prior_weight if item.role == "class" else 1.0) for item in self.items)
        # Sorted by id: the listing order of a file system must not matter.
        by_id = sorted(range(len(self.items)), key=lambda index: self.items[index].id)
        self._train = [(i, r) for i in by_id if self.items[i].role == "train" for r in range(self.items[i].repeats)]
        self._class = [(i, r) for i in by_id if self.items[i].role == "class" for r in range(self.items[i].repeats)]
        if not self._train:
            raise UserError("there is no picture to train on", remedy="check the concepts and their repeats")
        self._epochs: OrderedDict[int, list[list[_Deal]]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def samples_per_epoch(self) -> int:
        """How many samples an epoch holds, class samples included."""
        return len(self._train) * (2 if self._class else 1)

    @property
    def steps_per_epoch(self) -> int:
        """How many optimizer steps an epoch takes, a short last one included."""
        return -(-self.samples_per_epoch // self.batch)

    def samples_before(self, step: int) -> int:
        """How many samples steps 0 .. step-1 hold together."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        return epoch * self.samples_per_epoch + inside * self.batch

    def step(self, step: int) -> tuple[SampleRef, ...]:
        """The samples of step `step` (from 0) over all ranks: the same for any micro-batch and any number of ranks."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        with self._lock:
            if epoch not in self._epochs:
                self._epochs[epoch] = self._deal_epoch(epoch)
                while len(self._epochs) > _KEPT_EPOCHS:
                    self._epochs.popitem(last=False)
            self._epochs.move_to_end(epoch)
            dealt = self._epochs[epoch][inside]
        return tuple(SampleRef(index, visit, self._weights[index]) for index, visit in dealt)

    def micro_batches(
        self, refs: Sequence[SampleRef], micro_batch: int, rank: int = 0, world: int = 1
    ) -> tuple[tuple[SampleRef, ...], ...]:
        """Cut the samples of one step into this rank's micro-batches: one bucket each, at most `micro_batch` samples.

        Every rank gets the same number of micro-batches; the ranks' samples of weight above 0 join to `refs`.
        """
        buckets: dict[Bucket, list[SampleRef]] = {}
        for ref in refs:
            buckets.setdefault(self.items[ref.index].bucket, []).append(ref)
        chunks = [chunk for bucket in sorted(buckets) for chunk in _cut(buckets[bucket], micro_batch, world)]
        filler = (replace(chunks[-1][0], weight=0.0),)
        chunks.extend([filler] * (-len(chunks) % world))
        return tuple(chunks[rank::world])

    def _deal_epoch(self, epoch: int) -> list[list[_Deal]]:
        """Lay out all steps of an epoch."""
        shares = self._shares()
        train = self._queues([(i, epoch * self.items[i].repeats + r) for i, r in self._train], "train", epoch)
        prior = self._queues(self._class_samples(epoch), "class", epoch)
        steps: list[list[_Deal]] = []
        for bucket in sorted(train):  # steps of one bucket, with both roles in their right shares
            ours, theirs = train[bucket], prior.get(bucket, [])
            while len(steps) < len(shares) and all(map(_enough, (ours, theirs), shares[len(steps)])):
                share_train, share_class = shares[len(steps)]
                steps.append(_take(ours, share_train) + _take(theirs, share_class))
        rest = shares[len(steps) :]  # then each role from one bucket where it can be, else mixed
        steps.extend(
            ours + theirs
            for ours, theirs in zip(_fill(train, [s[0] for s in rest]), _fill(prior, [s[1] for s in rest]), strict=True)
        )
        return self._shuffled(steps, shares, epoch)

    def _shares(self) -> list[tuple[int, int]]:
        """(training, class) samples of each step: training and class in turn, counted through the epoch."""
        ends = [min((s + 1) * self.batch, self.samples_per_epoch) for s in range(self.steps_per_epoch)]
        if not self._class:
            return [(end - s * self.batch, 0) for s, end in enumerate(ends)]
        starts = [s * self.batch for s in range(self.steps_per_epoch)]
        return [
            ((end + 1) // 2 - (start + 1) // 2, end // 2 - start // 2) for start, end in zip(starts, ends, strict=True)
        ]

    def _class_samples(self, epoch: int) -> list[_Deal]:
        """The class samples of an epoch, dealt from the endless stream of shuffled rounds."""
        if not self._class:
            return []
        size = len(self._class)
        first, last = epoch * len(self._train), (epoch + 1) * len(self._train)
        dealt: list[_Deal] = []
        for turn in range(first // size, (last - 1) // size + 1):
            order = random.permutation(self._seed, "order/class round", turn, size)
            start, stop = max(first - turn * size, 0), min(last - turn * size, size)
            for place in order[start:stop].tolist():
                index, repeat = self._class[place]
                dealt.append((index, turn * self.items[index].repeats + repeat))
        return dealt

    def _queues(self, deals: Sequence[_Deal], stream: str, epoch: int) -> _Queues:
        """Sort samples into their buckets, each shuffled."""
        queues: _Queues = {}
        for deal in sorted(deals, key=lambda deal: (self.items[deal[0]].id, deal[1])):
            queues.setdefault(self.items[deal[0]].bucket, []).append(deal)
        for bucket, queue in queues.items():
            name = f"order/{stream}/{'x'.join(map(str, bucket))}"
            queues[bucket] = [
                queue[place] for place in random.permutation(self._seed, name, epoch, len(queue)).tolist()
            ]
        return queues

    def _shuffled(self, steps: list[list[_Deal]], shares: Sequence[tuple[int, int]], epoch: int) -> list[list[_Deal]]:
        """Shuffle steps of equal shares among themselves: a short step stays last, roles stay in turn."""
        kinds: dict[tuple[int, int], list[int]] = {}
        for place, share in enumerate(shares):
            kinds.setdefault(share, []).append(place)
        result = list(steps)
        for share, places in kinds.items():
            order = random.permutation(self._seed, f"order/steps/{share[0]}+{share[1]}", epoch, len(places))
            for place, source in zip(places, order.tolist(), strict=True):
                result[place] = steps[places[source]]
        return result


def _enough(queue: Sequence[_Deal], count: int) -> bool:
    return len(queue) >= count


def _take(queue: list[_Deal], count: int) -> list[_Deal]:
    """Remove and return the last `count` of a (shuffled) queue."""
    cut = len(queue) - count
    taken = queue[cut:]
    del queue[cut:]
    return taken


def _fill(queues: Mapping[Bucket, list[_Deal]], sizes: Sequence[int]) -> list[list[_Deal]]:
    """Fill places of the given sizes from one bucket each while a bucket can, then from what is left, by bucket."""
    places: list[list[_Deal]] = []
    for bucket in sorted(queues):
        while len(places) < len(sizes) and _enough(queues[bucket], sizes[len(places)]):
            places.append(_take(queues[bucket], sizes[len(places)]))
    rest = [deal for bucket in sorted(queues, reverse=True) for deal in queues[bucket]]
    places.extend(map(partial(_take, rest), sizes[len(places) :]))
    return places


def _cut(refs: Sequence[SampleRef], micro_batch: int, world: int) -> list[tuple[SampleRef, ...]]:
    """Cut samples of one bucket into nearly equal pieces of up to `micro_batch`, a multiple of `world` if it can."""
    count = len(refs)
    pieces = -(-count // max(1, min(micro_batch, -(-count // world))))
    even = -(-pieces // world) * world
    pieces = even if even <= count else pieces
    size, larger = divmod(count, pieces)  # larger pieces first: dealt round robin, each rank gets its share of them
    edges = list(accumulate((size + (piece < larger) for piece in range(pieces)), initial=0))
    return [tuple(refs[start:stop]) for start, stop in pairwise(edges)]
