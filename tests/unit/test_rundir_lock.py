"""The lock: refused while its process lives, taken over after a kill, never fooled by a reused process id."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from trainers.core.errors import UserError
from trainers.rundir import lock
from trainers.rundir.events import EventLog
from trainers.rundir.layout import RunDir

HOLD = (
    "import sys, time; from pathlib import Path\n"
    "from trainers.rundir import lock; from trainers.rundir.layout import RunDir\n"
    "lock.acquire(RunDir(Path(sys.argv[1]))); print('held', flush=True); time.sleep(60)\n"
)


@pytest.fixture
def run(awkward):
    return RunDir(awkward / "run")


@pytest.fixture
def holder(run, root):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(run.folder)], cwd=root, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def forge(run: RunDir, **changes) -> None:
    owner = lock.read_owner(run)
    assert owner is not None
    run.lock.write_text(owner.model_copy(update=changes).model_dump_json())


def test_a_second_start_is_refused_while_the_first_lives(run, holder):
    with pytest.raises(UserError, match=f"process {holder.pid}"):
        lock.acquire(run)
    assert lock.is_running(run)
    owner = lock.read_owner(run)
    assert owner is not None
    assert owner.pid == holder.pid


@pytest.mark.parametrize("reaped", [True, False])
def test_after_a_kill_the_lock_is_taken_over(run, holder, reaped):
    holder.kill()
    if reaped:
        holder.wait()
    else:  # a zombie still has its process id
        deadline = time.monotonic() + 10
        while lock.is_running(run) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not lock.is_running(run)
    with lock.hold(run) as owner:
        assert owner.pid == os.getpid()
        assert lock.read_owner(run) == owner
    assert lock.read_owner(run) is None


def test_a_reused_process_id_is_told_by_the_start_of_the_process(run):
    lock.acquire(run)
    assert lock.is_running(run)
    forge(run, process_start="another boot:12345")
    assert not lock.is_running(run)
    lock.acquire(run)


def test_the_lock_is_free_after_the_block_also_when_it_fails(run):
    with pytest.raises(RuntimeError), lock.hold(run):
        raise RuntimeError
    assert lock.read_owner(run) is None
    assert not lock.is_running(run)


def test_a_process_cannot_hold_it_twice(run):
    with lock.hold(run), pytest.raises(UserError):
        lock.acquire(run)


def test_giving_back_leaves_the_lock_of_another_alone(run):
    mine = lock.acquire(run)
    forge(run, token="another")
    lock.release(run, mine)
    assert lock.read_owner(run) is not None


def test_another_host_counts_as_alive_while_it_gives_signs(run):
    lock.acquire(run)
    forge(run, host="elsewhere")
    assert lock.is_running(run)
    with pytest.raises(UserError, match="elsewhere"):
        lock.acquire(run)
    forge(run, time=time.time() - 1000)
    assert not lock.is_running(run)
    with EventLog(run.events) as log:
        log.write("heartbeat")
    assert lock.is_running(run)


@pytest.mark.parametrize("content", [b"", b"{", b'{"host": 1}', b"\xff"])
def test_an_unreadable_lock_is_no_lock(run, content):
    run.create().lock.write_bytes(content)
    assert not lock.is_running(run)
    with lock.hold(run):
        assert lock.is_running(run)


def test_of_many_starts_at_once_one_wins(run, root):
    code = HOLD.replace("print('held', flush=True); time.sleep(60)", "print('held', flush=True); sys.stdin.read()")
    command = [sys.executable, "-c", code, str(run.folder)]
    starts = [
        subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(4)
    ]
    deadline = time.monotonic() + 60
    while sum(start.poll() is None for start in starts) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    assert sum(start.poll() is None for start in starts) == 1
    outputs = [start.communicate()[0] for start in starts]
    assert sorted(outputs) == [b"", b"", b"", b"held\n"]
