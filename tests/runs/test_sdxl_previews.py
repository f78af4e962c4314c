"""SDXL previews are painted from both of its texts, the sequence and the pooled one."""

from __future__ import annotations

from tests.tiny import Workbench
from trainers.core.errors import EXIT_DONE


def test_sdxl_paints_while_it_trains(bench: Workbench) -> None:
    preview = {"prompts": ["a red circle", "a blue square"], "every": "1 steps", "steps": 2, "size": [64, 64]}
    run = bench.run({"preview": preview, "run": {"length": "2 steps"}}, "xl", family="sdxl")
    assert run.code == EXIT_DONE
    assert [event.step for event in run.events if event.type == "preview"] == [0, 1, 2]
