"""C25, the closed form: 20 updates, 5 of them warm-up, cosine."""

from __future__ import annotations

import math

import pytest

from trainers.diffusion.rates import factor


def test_c25_closed_form():
    curve = {step: factor(step, 20, 5, "cosine") for step in range(21)}
    assert curve[4] == pytest.approx(0.8)
    assert curve[5] == 1.0
    assert curve[12] == pytest.approx(0.552, abs=5e-4)
    assert curve[20] == 0.0
    for step in range(6, 20):
        assert curve[step] == pytest.approx(0.5 * (1 + math.cos(math.pi * (step - 5) / 15)))
        assert 0 < curve[step] < 1
