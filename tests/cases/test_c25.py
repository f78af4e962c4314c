"""C25: the rates that a run really used are the closed form, whatever the accumulation."""

from __future__ import annotations

import math

import pytest

from tests.tiny import Workbench

PEAK = 2e-3


@pytest.mark.parametrize("micro", [1, 4])
def test_warmup_and_cosine_as_logged(bench: Workbench, micro: int) -> None:
    run = bench.run(
        {
            "run": {"length": "20 steps"},
            "data": {"batch": 4},
            "compute": {"micro_batch": micro},
            "optimizer": {"lr": PEAK},
            "schedule": {"kind": "cosine", "warmup": "5 steps"},
        }
    )
    expected = [n / 5 if n < 5 else 0.5 * (1 + math.cos(math.pi * (n - 5) / 15)) for n in range(1, 21)]
    assert run.rates == pytest.approx([PEAK * factor for factor in expected], abs=1e-12)
    shares = [rate / PEAK for rate in run.rates]
    assert (shares[3], shares[4], shares[19]) == pytest.approx((0.8, 1.0, 0.0), abs=1e-9)
    assert shares[11] == pytest.approx(0.552, abs=5e-4)
