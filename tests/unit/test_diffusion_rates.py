"""Learning-rate curves and the decay of averages."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.diffusion.averages import ema_decay
from trainers.diffusion.rates import factor

KINDS = st.sampled_from(["constant", "linear", "cosine", "polynomial"])


@given(kind=KINDS, total=st.integers(1, 500), share=st.floats(0, 0.9), floor=st.floats(0, 1), power=st.floats(0.5, 4))
def test_a_curve_rises_to_its_peak_and_falls_to_its_floor(kind, total, share, floor, power):
    warmup = int(total * share)
    curve = [factor(step, total, warmup, kind, power=power, floor=floor) for step in range(1, total + 1)]
    assert all(0 <= value <= 1 for value in curve)
    rising, falling = curve[:warmup], curve[warmup:]
    assert rising == sorted(rising)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(falling))
    if warmup:
        assert curve[warmup - 1] == 1.0
    if warmup < total:
        assert curve[-1] == pytest.approx(1.0 if kind == "constant" else floor)


@given(kind=KINDS, step=st.integers(0, 400), total=st.integers(1, 200))
def test_past_the_end_the_curve_stays(kind, step, total):
    if step >= total:
        assert factor(step, total, 0, kind) == factor(total, total, 0, kind)


def test_middles():
    assert factor(50, 100, 0, "linear") == 0.5
    assert factor(50, 100, 0, "cosine") == pytest.approx(0.5)
    assert factor(50, 100, 0, "polynomial", power=2.0) == 0.25
    assert factor(50, 100, 0, "linear", floor=0.2) == pytest.approx(0.6)


def test_cosine_starts_again_with_each_cycle():
    assert factor(49, 100, 0, "cosine", cycles=2) < 0.01
    assert factor(50, 100, 0, "cosine", cycles=2) == 1.0
    assert factor(75, 100, 0, "cosine", cycles=2) == pytest.approx(0.5)
    assert factor(100, 100, 0, "cosine", cycles=2) == 0.0


def test_unknown_schedules_are_refused():
    with pytest.raises(ValueError, match="schedule"):
        factor(1, 10, 0, "exponential")


def test_an_average_forgets_its_start_first():
    decays = [ema_decay(step, 0.999) for step in range(20_000)]
    assert decays == sorted(decays)
    assert decays[1] == pytest.approx(2 / 11)
    assert decays[-1] == 0.999
    assert ema_decay(1, 0.999, warmup=False) == 0.999
