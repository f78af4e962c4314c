"""Checkpoints: exact state, complete or not counted, rotation, full disks, readable by others."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from trainers.checkpoint import store
from trainers.checkpoint.tensors import read_state, save_tensors, write_state


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def write_text(text: str) -> Any:
    def write(folder: Path) -> None:
        (folder / "a.txt").write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub" / "b.txt").write_text(text * 100)

    return write


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        bits = torch.equal(left.contiguous().view(-1).view(torch.uint8), right.contiguous().view(-1).view(torch.uint8))
        return bits and left.dtype == right.dtype and left.shape == right.shape and left.stride() == right.stride()
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and left == right


def test_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    base = torch.arange(12, dtype=torch.float32)
    state = {
        "state": {
            0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)}
        },
        "types": {
            str(kind): torch.ones(3, dtype=kind) for kind in (torch.bfloat16, torch.float16, torch.int64, torch.bool)
        },
        "odd": [torch.tensor([float("nan"), float("inf"), -0.0]), torch.empty(0, 3), base[2:5], base[::2], base, base],
        "plain": (1, 2**70, 0.1, 1e-320, -0.0, float("inf"), float("nan"), True, None, "ü 猫", [], {}, ()),
        "keys": {1: torch.ones(1), "1": torch.zeros(1), None: 2, 0.5: 3},
        "$tensor": "a name like a tag",
        "d": 1e-6,
    }
    write_state(tmp_path, "optimizer", state)
    back = read_state(tmp_path, "optimizer")
    expected = {**state, "odd": [*state["odd"][:3], base[::2].contiguous(), *state["odd"][4:]]}  # type: ignore[index]
    assert same(back, expected)
    assert back["state"][0]["exp_avg"].is_contiguous(memory_format=torch.channels_last)
    assert math.copysign(1, back["plain"][4]) == -1


def test_state_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"optimizer/group/0: .*object"):
        write_state(tmp_path, "optimizer", {"group": [object()]})


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        save_tensors(tmp_path / "a.safetensors", {"x": torch.zeros(2)}, {"rank": "8"})
        assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(old)


def test_save_newest_and_rotation(tmp_path: Path) -> None:
    assert store.newest(tmp_path) == (None, [])
    for step in (2, 4, 6, 8):
        path = store.save(tmp_path, step, write_text(str(step)), {"samples": step * 3}, keep=1)
    assert names(tmp_path) == ["step-00000006", "step-00000008"], "two are kept even when one is asked for"
    assert store.newest(tmp_path) == (path, [])
    assert store.read_meta(path) == {"samples": 24}
    assert store.step_of(path) == 8


@pytest.mark.parametrize("harm", ["cut", "bits", "file", "manifest", "manifest cut", "format"])
def test_damaged_checkpoints_are_named_and_passed_over(tmp_path: Path, harm: str) -> None:
    good = store.save(tmp_path, 1, write_text("one"), {})
    bad = store.save(tmp_path, 2, write_text("two"), {})
    file, manifest = bad / "sub" / "b.txt", bad / store.MANIFEST
    if harm == "cut":
        os.truncate(file, 7)
    elif harm == "bits":
        file.write_text("X" + file.read_text()[1:])
    elif harm == "file":
        file.unlink()
    elif harm == "manifest":
        manifest.unlink()
    elif harm == "manifest cut":
        os.truncate(manifest, 20)
    else:
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    found, skipped = store.newest(tmp_path)
    assert found == good
    assert [problem.where for problem in skipped] == [str(bad)]
    if harm != "bits":
        store.save(tmp_path, 3, write_text("three"), {}, keep=2)
        assert good.exists(), "a damaged checkpoint counted as one to keep"
        assert bad.exists(), "a person may want to look at it"


def test_same_step_twice_takes_the_later(tmp_path: Path) -> None:
    store.save(tmp_path, 5, write_text("first"), {"n": 1})
    path = store.save(tmp_path, 5, write_text("second"), {"n": 2})
    assert store.read_meta(path) == {"n": 2}
    assert names(tmp_path) == ["step-00000005"]


def test_killed_between_two_renames_of_one_step(tmp_path: Path) -> None:
    path = store.save(tmp_path, 5, write_text("first"), {"n": 1})
    path.rename(path.with_name(".replaced-step-00000005"))
    found, _ = store.newest(tmp_path)
    assert found is not None
    assert store.read_meta(found) == {"n": 1}
    store.clean_staging(tmp_path)
    assert store.newest(tmp_path) == (found, []), "cleaning up took away what the run resumes from"
    store.save(tmp_path, 5, write_text("second"), {"n": 2})
    assert names(tmp_path) == ["step-00000005"]
    assert store.read_meta(path) == {"n": 2}


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        store.save(tmp_path, 1, write, {})
    assert names(tmp_path) == []


def test_too_little_space_is_seen_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store.save(tmp_path, 1, write_text("one"), {})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(store.DiskFull, match="the disk is full"):
        store.save(tmp_path, 2, lambda folder: pytest.fail("was written"), {}, need_bytes=2 * 10**6)
    assert store.newest(tmp_path) == (kept, [])


def test_disk_full_on_the_way(tmp_path: Path) -> None:
    kept = store.save(tmp_path, 1, write_text("one"), {})

    def write(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(store.DiskFull) as caught:
        store.save(tmp_path, 2, write, {})
    assert "older checkpoints are untouched" in str(caught.value)
    assert names(tmp_path) == [kept.name]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_real_errors_of_a_full_disk_are_recognised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    assert store.is_disk_full(caught.value)
    assert not store.is_disk_full(ValueError("os error 28"))
