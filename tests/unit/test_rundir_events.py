"""The event log: nothing is lost, nothing is changed, and no half line stops anybody."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainers.rundir import events
from trainers.rundir.heartbeat import Heartbeat

WHOLE = {
    "status": {"state": "training", "message": "go", "total_steps": 9},
    "plan": {"plan": {"steps": 400, "memory": {"weights": 1.5}}},
    "metric": {"loss": 0.1, "lr": 1e-4, "grad_norm": 2.0, "skipped": 1.0},
    "validation": {"loss": 0.3, "by_time": {"0.1": 0.2}},
    "preview": {"files": ["samples/step-00000001/0.png"], "prompts": ["a cat"], "seeds": [1]},
    "checkpoint": {"path": "checkpoints/step-00000001", "bytes": 12},
    "request": {"id": "1", "name": "stop", "answer": "heard"},
    "warning": {"message": "small", "where": "a.png", "remedy": "leave it out"},
    "error": {"message": "broken", "details": "Traceback ..."},
    "heartbeat": {},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "events.jsonl"


def test_every_type_comes_back_as_it_was_written(path):
    with events.EventLog(path) as log:
        written = [log.write(name, step=1, samples=8, **fields) for name, fields in WHOLE.items()]
    assert events.read(path) == written
    assert {event.type for event in events.read(path)} == set(WHOLE)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert all({"v", "time", "type", "step", "samples"} <= set(line) for line in lines)
    assert lines[2]["skipped"] == 1.0


@given(loss=st.floats(), lr=st.floats(allow_nan=False))
def test_floats_come_back_bit_for_bit(tmp_path_factory, loss, lr):
    path = tmp_path_factory.mktemp("floats") / "events.jsonl"
    with events.EventLog(path) as log:
        log.write("metric", step=1, samples=1, loss=loss, lr=lr, other=loss)
    line = path.read_text(encoding="utf-8")
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    (event,) = events.read(path)
    assert isinstance(event, events.MetricEvent)
    assert math.isnan(event.loss) if math.isnan(loss) else event.loss == loss
    assert math.isnan(event.other) if math.isnan(loss) else event.other == loss
    assert event.lr == lr
    if math.isfinite(loss):
        assert json.loads(line)["loss"] == loss


@pytest.mark.parametrize("kept", [1, 20, 60, -1])
def test_a_half_last_line_stops_neither_reader_nor_next_writer(path, kept):
    with events.EventLog(path) as log:
        log.write("metric", step=1, samples=4, loss=1.0, lr=0.1)
        log.write("metric", step=2, samples=8, loss=2.0, lr=0.1)
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n" + second[:kept])
    assert [event.step for event in events.read(path)] == [1]
    assert events.last(path).step == 1
    before = path.read_bytes()
    with events.EventLog(path) as log:
        log.write("metric", step=2, samples=8, loss=2.0, lr=0.1)
    assert [event.step for event in events.read(path)] == [1, 2]
    assert path.read_bytes().startswith(before)


def test_a_complete_line_without_its_end_is_kept_by_the_next_writer(path):
    with events.EventLog(path) as log:
        log.write("heartbeat", step=7)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with events.EventLog(path) as log:
        assert log.write("heartbeat").step == 7
    assert [event.step for event in events.read(path)] == [7, 7]


def test_what_is_not_understood_is_skipped(path):
    with events.EventLog(path) as log:
        log.write("heartbeat", step=1)
    foreign = [
        b'{"v": 9, "type": "hologram", "time": 1, "step": 5}', b"\x00\x00\x00", b"\xff\xfe", b"", b"[1]", b"nonsense",
        b'{"v":9,"type":"status","time":2,"step":6,"state":"meditating"}',
        b'{"v":9,"type":"status","time":2,"step":6,"state":"done","mood":"good"}',
    ]  # fmt: skip
    with open(path, "ab") as file:
        file.write(b"\n".join(foreign) + b"\n")
    assert [(event.type, event.step) for event in events.read(path)] == [("heartbeat", 1), ("status", 6)]


def test_a_writer_refuses_what_readers_would_not_know(path):
    with events.EventLog(path) as log:
        with pytest.raises(TypeError, match="mood"):
            log.write("status", state="training", mood="good")
        with pytest.raises(KeyError):
            log.write("hologram")
        with pytest.raises(ValidationError):
            log.write("metric", loss=1.0)
    assert events.read(path) == []


def test_step_and_samples_stay_where_they_were(path):
    with events.EventLog(path) as log:
        log.write("metric", step=3, samples=12, loss=1.0, lr=0.1)
        assert (log.write("heartbeat").step, log.write("heartbeat").samples) == (3, 12)
    with events.EventLog(path) as log:
        assert log.write("warning", message="again").samples == 12


def test_the_last_event_is_found_in_a_long_file(path):
    with events.EventLog(path) as log:
        log.write("status", state="training")
        for step in range(1, 3000):
            log.write("metric", step=step, samples=step, loss=0.5, lr=1e-4)
    assert path.stat().st_size > 3 * events._TAIL_BYTES
    assert events.last(path).step == 2999
    assert events.last(path, "status").state == "training"
    assert events.last(path, "error") is None
    assert events.last(path.with_name("none")) is None


def test_a_tail_sees_each_line_once_and_only_when_it_is_whole(path):
    tail = events.Tail(path)
    assert tail.new() == []
    with events.EventLog(path) as log:
        log.write("heartbeat", step=1)
        assert [event.step for event in tail.new()] == [1]
        line = log.write("heartbeat", step=2).model_dump_json().encode()
        assert [event.step for event in tail.new()] == [2]
    with open(path, "ab", buffering=0) as file:
        file.write(line[:30])
        assert tail.new() == []
        file.write(line[30:] + b"\n")
        assert [event.step for event in tail.new()] == [2]
    path.write_bytes(line + b"\n")  # another file in its place
    assert [event.step for event in tail.new()] == [2]


def test_following_ends_with_the_last_event(path):
    done = threading.Event()

    def run():
        with events.EventLog(path) as log:
            for step in range(1, 50):
                log.write("heartbeat", step=step)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    steps = [event.step for event in events.follow(path, until=done.is_set, poll_seconds=0.001)]
    thread.join()
    assert steps == list(range(1, 50))


def test_repeated_steps_of_a_resumed_run_make_one_curve(path):
    with events.EventLog(path) as log:
        for step, loss in ((1, 1.0), (2, 2.0), (3, 3.0), (2, 2.5), (3, 3.5), (4, 4.0)):
            log.write("metric", step=step, samples=step, loss=loss, lr=0.1)
    metrics = [event for event in events.read(path) if isinstance(event, events.MetricEvent)]
    assert [(event.step, event.loss) for event in events.by_step(metrics)] == [(1, 1.0), (2, 2.5), (3, 3.5), (4, 4.0)]


def test_threads_do_not_mix_their_lines(path):
    with events.EventLog(path) as log:
        work = [
            threading.Thread(target=lambda: [log.write("warning", message="x" * 5000) for _ in range(50)])
            for _ in range(4)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    assert len(events.read(path)) == 200


def test_a_heartbeat_fills_only_the_silence(path):
    with events.EventLog(path) as log:
        began = time.monotonic()
        with Heartbeat(log, every=0.02):
            while len(events.read(path)) < 3 and time.monotonic() < began + 30:
                time.sleep(0.01)
        count = len(events.read(path))
        assert 3 <= count <= (time.monotonic() - began) / 0.02
        time.sleep(0.05)
        assert len(events.read(path)) == count
        with Heartbeat(log, every=60):
            log.write("warning", message="busy")
    assert events.read(path)[-1].type == "warning"


def test_a_kill_while_writing_leaves_a_readable_log(path, root):
    code = (
        "import sys; from pathlib import Path; from trainers.rundir.events import EventLog\n"
        "log = EventLog(Path(sys.argv[1])); step = 0\n"
        "while True:\n    step += 1; log.write('warning', step=step, message='x' * 3000)\n"
        "    print(step, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=root, stdout=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 40:
            process.kill()
            break
    process.wait()
    process.stdout.close()
    seen = [event.step for event in events.read(path)]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 40
    with events.EventLog(path) as log:
        log.write("heartbeat", step=99)
    assert events.read(path)[-1].step == 99
