"""The collector is out of the way inside the block, and as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from trainers.memory.collector import collector_paused, keep_imported


def test_nested_blocks_give_the_collector_back_once() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_gives_it_back_too() -> None:
    with pytest.raises(ValueError, match="inside"), collector_paused():
        raise ValueError("inside")
    assert gc.isenabled()


def test_who_runs_without_a_collector_stays_without() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_imported_is_exempt() -> None:
    before = gc.get_freeze_count()
    try:
        keep_imported()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
