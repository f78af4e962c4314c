"""C18: seven pictures in five shapes, batch 2: all are seen in one epoch, the short micro-batches are visible."""

from __future__ import annotations

from trainers.data.order import Order, OrderItem

SHAPES = [(64, 64), (64, 64), (64, 64), (48, 80), (80, 48), (40, 96), (96, 40)]


def test_c18_sparse_buckets_lose_nothing() -> None:
    items = [OrderItem(f"picture{number}", shape) for number, shape in enumerate(SHAPES)]
    order = Order(items, batch=2, seed=1)
    assert order.steps_per_epoch == 4
    for epoch in range(3):
        steps = [order.step(epoch * 4 + inside) for inside in range(4)]
        assert sorted(ref.index for refs in steps for ref in refs) == list(range(7))
        assert [len(refs) for refs in steps] == [2, 2, 2, 1]
        micro = [one for refs in steps for one in order.micro_batches(refs, 2)]
        assert sorted(len(one) for one in micro) == [1, 1, 1, 1, 1, 2]
