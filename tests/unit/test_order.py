"""The order of samples: nothing dropped, nothing repeated, the same for any micro-batch and any number of ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.core.errors import UserError
from trainers.data.order import Order, OrderItem, SampleRef

BUCKETS = [(64, 64), (64, 96), (96, 64), (48, 112)]


@st.composite
def item_lists(draw: st.DrawFn, *, prior: bool | None = None) -> list[OrderItem]:
    train = draw(st.integers(1, 14))
    classes = draw(st.integers(0, 9)) if prior is None else (draw(st.integers(1, 9)) if prior else 0)
    return [
        OrderItem(
            f"p{number:02d}",
            draw(st.sampled_from(BUCKETS)),
            draw(st.integers(1, 4)),
            role="train" if number < train else "class",
        )
        for number in range(train + classes)
    ]


def epoch_refs(order: Order, epoch: int) -> list[SampleRef]:
    first = epoch * order.steps_per_epoch
    return [ref for s in range(first, first + order.steps_per_epoch) for ref in order.step(s)]


@settings(max_examples=60, deadline=None)
@given(item_lists(), st.integers(1, 7), st.integers(0, 5), st.integers(0, 3))
def test_nothing_dropped_nothing_added(items: list[OrderItem], batch: int, seed: int, epoch: int) -> None:
    order = Order(items, batch=batch, seed=seed)
    refs = epoch_refs(order, epoch)
    assert len(refs) == order.samples_per_epoch
    train = Counter((ref.index, ref.visit) for ref in refs if items[ref.index].role == "train")
    assert train == Counter(
        (index, epoch * item.repeats + repeat)
        for index, item in enumerate(items)
        if item.role == "train"
        for repeat in range(item.repeats)
    )
    lengths = [len(order.step(epoch * order.steps_per_epoch + s)) for s in range(order.steps_per_epoch)]
    assert all(length == batch for length in lengths[:-1])
    assert 1 <= lengths[-1] <= batch
    assert order.samples_before((epoch + 1) * order.steps_per_epoch) == (epoch + 1) * order.samples_per_epoch


@settings(max_examples=40, deadline=None)
@given(item_lists(prior=True), st.integers(1, 7), st.integers(0, 5))
def test_class_samples_are_spread_and_seen_equally_often(items: list[OrderItem], batch: int, seed: int) -> None:
    order = Order(items, batch=batch, seed=seed)
    seen: Counter[tuple[int, int]] = Counter()
    for step in range(5 * order.steps_per_epoch):
        refs = order.step(step)
        classes = [(ref.index, ref.visit) for ref in refs if items[ref.index].role == "class"]
        assert abs(2 * len(classes) - len(refs)) <= 1
        seen.update(classes)
    assert max(seen.values()) == 1, "a class picture came twice with the same visit number"
    rounds = [
        sum(index == number for index, _ in seen) / item.repeats
        for number, item in enumerate(items)
        if item.role == "class"
    ]
    assert max(rounds) - min(rounds) <= 1


@settings(max_examples=60, deadline=None)
@given(item_lists(), st.integers(1, 8), st.integers(1, 5), st.integers(1, 4), st.integers(0, 6))
def test_slices_join_to_the_whole(items: list[OrderItem], batch: int, micro: int, world: int, step: int) -> None:
    order = Order(items, batch=batch, seed=1)
    refs = order.step(step)
    ranks = [order.micro_batches(refs, micro, rank, world) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1, "ranks would wait for each other for ever"
    for batches in ranks:
        for refs_of_one in batches:
            assert 1 <= len(refs_of_one) <= micro
            assert len({items[ref.index].bucket for ref in refs_of_one}) == 1
    kept = [ref for batches in ranks for one in batches for ref in one if ref.weight > 0]
    assert Counter(kept) == Counter(refs)
    assert sum(ref.weight for ref in kept) == pytest.approx(sum(ref.weight for ref in refs))


@settings(max_examples=30, deadline=None)
@given(item_lists(), st.integers(1, 6), st.permutations(range(23)))
def test_listing_order_and_history_do_not_matter(items: list[OrderItem], batch: int, shuffle: list[int]) -> None:
    mixed = [items[number] for number in shuffle if number < len(items)]
    first, second = Order(items, batch=batch, seed=3), Order(mixed, batch=batch, seed=3)
    steps = range(3 * first.steps_per_epoch)
    ahead = {s: [(mixed[r.index].id, r.visit) for r in second.step(s)] for s in reversed(steps)}
    assert all([(items[r.index].id, r.visit) for r in first.step(s)] == ahead[s] for s in steps)


def test_epochs_and_seeds_differ() -> None:
    items = [OrderItem(f"p{n}", (64, 64)) for n in range(12)]
    orders = [[ref.index for ref in epoch_refs(Order(items, batch=3, seed=seed), e)] for seed in (1, 2) for e in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_steps_keep_to_one_bucket_while_a_bucket_can_fill_them() -> None:
    items = [OrderItem(f"a{n}", (64, 64)) for n in range(9)] + [OrderItem(f"b{n}", (64, 96)) for n in range(6)]
    order = Order(items, batch=4, seed=1)
    pure = sum(len({items[ref.index].bucket for ref in order.step(s)}) == 1 for s in range(order.steps_per_epoch))
    assert (order.steps_per_epoch, pure) == (4, 3)  # 2 of a, 1 of b, then 1 a and 2 b together


def test_class_pictures_share_the_micro_batch_of_their_bucket() -> None:
    items = [OrderItem(f"s{n}", (64, 64)) for n in range(4)]
    items += [OrderItem(f"c{n}", (64, 64), role="class") for n in range(6)]
    order = Order(items, batch=4, seed=1, prior_weight=0.5)
    for step in range(6):
        (micro,) = order.micro_batches(order.step(step), 4)
        assert Counter(ref.weight for ref in micro) == {1.0: 2, 0.5: 2}


def test_ranks_share_evenly_without_copies_where_they_can() -> None:
    items = [OrderItem(f"p{n}", (64, 64)) for n in range(6)]
    order = Order(items, batch=6, seed=1)
    sizes = [[len(one) for one in order.micro_batches(order.step(0), 2, rank, 2)] for rank in (0, 1)]
    assert sorted(map(sorted, sizes)) == [[1, 2], [1, 2]]


def test_nothing_to_train_on_is_an_error_for_people() -> None:
    with pytest.raises(UserError, match="no picture"):
        Order([OrderItem("c", (64, 64), role="class")], batch=1, seed=1)
