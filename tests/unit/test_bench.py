"""`trainers bench step` measures what it says; how fast that is, is no matter of a test."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from trainers.engine.bench import measure
from trainers.engine.bench.measure import Bench, bench_step
from trainers.engine.bench.spec import LEAST, SMALL, Case, preset_text
from trainers.engine.bench.table import cells, render_bench
from trainers.presets.load import load_preset

SMALLEST = Bench(rounds=1, steps=1, warmup=1, model=LEAST, sizes=(64, 64), pictures=4)


def shown(measured: dict[str, object]) -> str:
    out = io.StringIO()
    Console(file=out, width=240).print(render_bench(measured))
    return out.getvalue()


def test_a_case_travels_to_another_process_whole(tmp_path: Path) -> None:
    case = SMALLEST.case(tmp_path, 64, "bf16", model=SMALL)
    assert Case.from_json(case.to_json()) == case


def test_the_measured_run_is_the_one_the_table_tells_of(tmp_path: Path) -> None:
    case = Case(tmp_path, SMALL, 256, "bf16", warmup=3, rounds=2, steps=4)
    case.data.mkdir(parents=True)
    case.preset.write_text(preset_text(case), encoding="utf-8")
    preset = load_preset(case.preset).preset
    assert preset.run.length == "11 steps"
    assert (preset.train.kind, preset.train.rank, preset.train.targets) == ("lora", 16, "attention")
    assert (preset.optimizer.kind, preset.optimizer.lr, preset.data.batch) == ("adamw", 1e-4, 2)
    assert (preset.compute.device, preset.compute.precision, preset.data.area) == ("cpu", "bf16", "256px")


def test_ratios_are_of_the_same_round() -> None:
    plain = [{"cpu": 1.0, "wall": 2.0}, {"cpu": 2.0, "wall": 2.0}, {"cpu": 4.0, "wall": 2.0}]
    ours = [{"cpu": 0.5, "wall": 1.0}, {"cpu": 1.8, "wall": 2.0}, {"cpu": 3.0, "wall": 3.0}]
    row = measure._compare("step", "s", plain, ours, "0.9")
    assert (row.plain, row.ours, row.ratio, row.least, row.most, row.wall) == (2.0, 1.8, 0.75, 0.5, 0.9, 1.0)


def test_the_table_leaves_empty_what_was_not_measured() -> None:
    row = {
        "name": "fixed cost", "unit": "ms", "plain": None, "ours": 4.26, "ratio": None,
        "least": None, "most": None, "wall": None, "aim": "5",
    }  # fmt: skip
    assert cells(row) == ("fixed cost", "ms", "", "4.3", "", "", "", "5")


@pytest.mark.slow
def test_the_whole_bench_at_its_smallest_size() -> None:
    said: list[str] = []
    measured = bench_step(SMALLEST, ("fp32",), said.append)
    assert json.loads(json.dumps(measured)) == measured
    rows = {row["name"]: row for row in measured["rows"]}
    begun = (
        "step, least U-Net, 64 px, fp32",
        "peak memory",
        "fixed cost",
        "start to first",
        "trainers --help",
        "latent",
    )
    assert all(any(name.startswith(start) for name in rows) for start in begun), list(rows)
    assert all(row["ours"] > 0 for row in rows.values() if row["unit"] != "ms")  # a fixed cost may be hidden by noise
    assert all(row["ratio"] is None or row["ratio"] > 0 for name, row in rows.items() if "cost" not in name)
    text = shown(measured)
    assert measured["machine"] in text
    assert measured["date"] in text
    assert said[-1] == "caching"
