"""C17: three pictures, batch 4, two ranks: no hang, no empty rank, every picture seen equally often."""

from __future__ import annotations

from collections import Counter

import pytest

from trainers.data.order import Order, OrderItem


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_c17_three_pictures_batch_four_two_ranks(micro_batch: int) -> None:
    order = Order([OrderItem(name, (64, 64)) for name in "abc"], batch=4, seed=1)
    assert (order.samples_per_epoch, order.steps_per_epoch) == (3, 1)
    seen: Counter[int] = Counter()
    for step in range(4 * order.steps_per_epoch):
        refs = order.step(step)
        ranks = [order.micro_batches(refs, micro_batch, rank, 2) for rank in (0, 1)]
        assert len(ranks[0]) == len(ranks[1]) >= 1
        real = [ref for batches in ranks for one in batches for ref in one if ref.weight > 0]
        assert len(real) == 3
        seen.update(ref.index for ref in real)
    assert seen == {0: 4, 1: 4, 2: 4}
