"""The benchmark measures what it says; how fast that is, is no matter of a test."""

from __future__ import annotations

import torch

from trainers.engine import benchmark


def test_both_loops_train_the_same_layers_on_the_same_tensors() -> None:
    data = benchmark._batch(8, 2)
    first, second = benchmark._network(), benchmark._network()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    benchmark._plain_loop(first, data)()
    benchmark._our_loop(second, data, benchmark.choose("cpu", "fp32"))()
    trained = [sum(p.numel() for p in network.parameters() if p.requires_grad) for network in (first, second)]
    assert trained[0] == trained[1] > 0


def test_a_measurement_becomes_a_table() -> None:
    measured = benchmark.bench_step(pixels=64, batch=1, rounds=1, steps=1)
    assert measured.plain_seconds > 0
    assert measured.our_seconds > 0
    text = benchmark.render_bench([measured])
    assert "| 64 | 1 | fp32 |" in text
    assert measured.to_json()["over_ms"] == measured.over_ms
