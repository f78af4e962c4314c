"""Layout, control requests, and a status that never believes a process that is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainers.rundir import control, lock
from trainers.rundir.events import EventLog
from trainers.rundir.layout import RunDir, step_name, step_of
from trainers.rundir.status import read_status


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run").create()


def say(run: RunDir, state: str, **fields) -> None:
    with EventLog(run.events) as log:
        log.write("status", state=state, **fields)


def die(run: RunDir) -> None:
    """Leave the lock as a killed process does."""
    owner = lock.read_owner(run) or lock.acquire(run)
    run.lock.write_text(owner.model_copy(update={"process_start": "gone"}).model_dump_json())


def test_a_folder_nobody_has_touched_waits(run):
    assert read_status(run).state == "waiting"
    assert not run.started()
    say(run, "waiting")
    assert read_status(run).state == "waiting"
    assert run.started()


@pytest.mark.parametrize("state", ["preparing", "training", "sampling", "saving", "stopping"])
def test_a_living_process_is_believed_and_a_dead_one_is_not(run, state):
    with lock.hold(run):
        say(run, state, step=3, samples=12, total_steps=9, message="hello")
        status = read_status(run)
        assert (status.state, status.step, status.samples, status.total_steps) == (state, 3, 12, 9)
        assert status.running
        assert not status.resumable
        assert status.pid is not None
        assert status.message == "hello"
        die(run)
        status = read_status(run)
        assert (status.state, status.step, status.pid) == ("interrupted", 3, None)
        assert status.resumable
        assert not status.running
    assert not run.lock.exists()
    assert read_status(run).state == "interrupted"


@pytest.mark.parametrize("state", ["stopped", "failed", "done"])
@pytest.mark.parametrize("locked", [True, False])
def test_a_final_word_stands_however_the_process_ended(run, state, locked):
    lock.acquire(run)
    say(run, "training")
    say(run, state)
    die(run)
    if not locked:
        run.lock.unlink()
    assert read_status(run).state == state
    assert read_status(run).resumable == (state != "done")


def test_a_new_start_after_a_final_word_is_preparing_or_interrupted(run):
    say(run, "stopped")
    lock.acquire(run)
    assert read_status(run).state == "preparing"
    die(run)
    assert read_status(run).state == "interrupted"


def test_a_death_before_the_first_word_is_seen(run):
    lock.acquire(run)
    assert read_status(run).state == "preparing"
    die(run)
    assert read_status(run).state == "interrupted"


def test_a_stop_request_shows_at_once_and_only_while_somebody_can_hear_it(run):
    with lock.hold(run):
        say(run, "preparing")
        control.request(run, "save")
        assert read_status(run).state == "preparing"
        control.request(run, "stop")
        assert read_status(run).state == "stopping"
    assert read_status(run).state == "interrupted"


def test_a_log_cut_by_a_kill_still_tells_the_status(run):
    with lock.hold(run):
        say(run, "training", step=5, samples=5)
        with open(run.events, "ab") as file:
            file.write(b'{"v":1,"time":1.0,"step":6,"samp')
        assert (read_status(run).state, read_status(run).step) == ("training", 5)


def test_requests_are_heard_in_order_and_once(run):
    first, second = control.request(run, "save"), control.request(run, "stop")
    assert control.poll(run) == [first, second]
    control.answer(run, first)
    assert control.poll(run) == [second]
    control.answer(run, first)
    (run.control / "note.json").write_text("not a request")
    (run.control / ".half.json.tmp").write_text("{")
    assert control.poll(run) == [second]
    control.clear(run)
    assert control.poll(run) == []
    assert (run.control / "note.json").exists()


def test_asking_a_folder_without_control_is_no_error(tmp_path):
    assert control.poll(RunDir(tmp_path / "nothing")) == []


def test_names_of_steps_sort_as_steps_do(run):
    steps = [1, 9, 10, 999, 100_000]
    assert sorted(map(step_name, reversed(steps))) == [step_name(step) for step in steps]
    assert [step_of(step_name(step)) for step in steps] == steps
    assert step_of(".staging-step-00000001") is None
    assert step_of("step-x") is None
    assert run.checkpoint(500).name == "step-00000500"
    assert run.samples_of(500).parent == run.samples
    assert run.log(2).name == "rank-002.log"


def test_the_run_directory_is_read_without_torch_and_numpy(root):
    code = "import sys; from trainers.rundir import control, events, heartbeat, layout, lock, status\n"
    code += "assert not {'torch', 'numpy', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
