"""Heap settings are a matter of speed alone: wherever they are absent, nothing happens."""

from __future__ import annotations

import pytest

from trainers.memory import heap


class Library:
    """Records what it is told, as the C library would be."""

    def __init__(self) -> None:
        self.told: list[tuple[int, ...]] = []

    def mallopt(self, option: int, value: int) -> int:
        self.told.append((option, value))
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.told.append((pad,))
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(heap, "_library", lambda: library)
    monkeypatch.setattr(heap, "_kept", False)
    return library


def test_networks_are_loaded_outside_the_kept_heap(library: Library) -> None:
    assert heap.keep_pages()
    library.told.clear()
    with heap.big_blocks_apart():
        assert library.told[-1] == (heap._M_MMAP_MAX, heap._MMAP_MAX_OF_GLIBC)
    assert library.told[-1] == (heap._M_MMAP_MAX, 0)


def test_an_error_while_loading_keeps_pages_again(library: Library) -> None:
    heap.keep_pages()
    with pytest.raises(ValueError, match="broken"), heap.big_blocks_apart():
        raise ValueError("broken")
    assert library.told[-1] == (heap._M_MMAP_MAX, 0)


def test_a_heap_that_is_not_kept_is_left_alone(library: Library) -> None:
    with heap.big_blocks_apart():
        pass
    assert library.told == []


def test_another_system_has_no_such_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap.sys, "platform", "win32")
    assert not heap.keep_pages()
    with heap.big_blocks_apart():
        pass
