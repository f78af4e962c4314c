"""Other systems, simulated where this one allows: consoles and locales, locks on files, odd names."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pictures import draw, make_pictures
from trainers.cli import _output
from trainers.core import atomic, digest
from trainers.core.errors import Problem, UserError
from trainers.data.captions import words_of_name
from trainers.data.config import Concept, DataConfig
from trainers.data.listing import list_files, natural_key
from trainers.data.metadata import read_metadata
from trainers.data.scan import scan
from trainers.engine.signals import StopRequest, listening
from trainers.presets import document
from trainers.presets.freeze import frozen_text
from trainers.presets.load import load_preset
from trainers.rundir import events, lock

ROOT = Path(__file__).resolve().parents[2]
POSIX = pytest.mark.skipif(os.name == "nt", reason="simulates Windows, or makes what Windows cannot have")
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have only names in Unicode")
OLD_NAME = b"caf\xe9.png"  # Latin-1, as old zip files leave it on a Linux disk

BAD_NAMES = ("con", "NUL.txt", "com1", "com\u00b9", "a:b", "a\\b", "end.", " x", "x" * 121, "猫" * 41)

PRESET = """\
version = 1  # ü 猫

[run]
length = "40 steps"

[model]
family = "sd15"

[train]
kind = "lora"

[optimizer]
kind = "adamw"

[data]
batch = 2
concepts = [{{ folder = '{folder}' }}]
"""


def write_preset(path: Path, folder: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PRESET.format(folder=folder).encode())
    return path


# files on Windows


def refusing(times: int, act):
    """Make a function that is refused some times before it works, as by a reader or a virus scanner."""
    left = [times]

    def stubborn(*arguments, **named):
        if left[0]:
            left[0] -= 1
            raise PermissionError(13, "The process cannot access the file because it is being used by another process")
        return act(*arguments, **named)

    return stubborn


def test_a_file_that_is_read_for_a_moment_is_replaced_a_moment_later(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_WINDOWS", True)
    monkeypatch.setattr(atomic, "_WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "replace", refusing(3, os.replace))
    atomic.write_bytes(tmp_path / "status.json", b"new")
    assert (tmp_path / "status.json").read_bytes() == b"new"


def test_a_file_that_stays_forbidden_is_an_error_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_WINDOWS", True)
    monkeypatch.setattr(atomic, "_WAITS", (0.0,))
    monkeypatch.setattr(os, "replace", refusing(99, os.replace))
    with pytest.raises(PermissionError):
        atomic.write_bytes(tmp_path / "status.json", b"new")
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_elsewhere_a_refusal_is_final_at_once(monkeypatch):
    with pytest.raises(PermissionError):
        atomic.patiently(refusing(1, list))


def test_a_name_that_just_fits_can_be_written(tmp_path):
    path = tmp_path / f"{'ü' * 120}.json"
    atomic.write_json(path, {})
    assert path.read_bytes() == b"{}\n"


@POSIX
@pytest.mark.parametrize(("number", "tolerated"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_file_system_without_folder_sync_is_no_error_but_a_broken_disk_is(tmp_path, monkeypatch, number, tolerated):
    def refuse(handle):
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    if tolerated:
        atomic.fsync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match="no"):
            atomic.fsync_folder(tmp_path)


# presets


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_preset_is_saved_with_the_bytes_it_had(tmp_path, newline, mark):
    path = tmp_path / "preset.toml"
    data = mark + PRESET.format(folder="ü").replace("\n", newline).encode()
    path.write_bytes(data)
    document.save(path, document.parse(document.read_text(path), "preset.toml"))
    assert path.read_bytes() == data


def test_backslashes_lead_to_the_pictures_from_the_preset_and_from_its_run(tmp_path):
    make_pictures(tmp_path / "presets" / "pics" / "cats", 2)
    loaded = load_preset(write_preset(tmp_path / "presets" / "a.toml", "pics\\cats"))
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    (run / "preset.toml").write_bytes(frozen_text(loaded, run).encode())
    for found in (loaded, load_preset(run / "preset.toml")):
        assert len(scan(found.preset.data, found.folder).items) == 2


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_of_runs_that_some_system_refuses_are_refused_on_all(tmp_path, name):
    with pytest.raises(UserError, match=r"run\.name"):
        load_preset(write_preset(tmp_path / "a.toml", "pics"), [f"run.name={json.dumps(name)}"])


# names of files


def test_any_name_can_be_sorted():
    names = ["²x.png", "10.png", "2.png", "x²", "٣.png", "a10b2", "a2b10"]
    assert sorted(names, key=natural_key)[:2] == ["2.png", "10.png"]


@POSIX
def test_names_that_differ_in_case_only_keep_their_own_captions(tmp_path):
    for name in ("Cat", "cat", "CAT"):
        draw(len(name))[0].save(tmp_path / f"{name}.PNG")
        (tmp_path / f"{name}.txt").write_text(f"this is {name}", encoding="utf-8")
    found = scan(DataConfig(concepts=[Concept(folder=str(tmp_path))]), tmp_path)
    assert {item.name: item.captions for item in found.items} == {
        path.name: (path.with_suffix(".txt").read_text(encoding="utf-8"),) for path in tmp_path.glob("*.PNG")
    }


def test_a_caption_is_found_whatever_the_case_of_its_name(tmp_path):
    draw(1)[0].save(tmp_path / "Cat.PNG")
    (tmp_path / "CAT.TXT").write_text("here", encoding="utf-8")
    found = list_files(tmp_path).find("", "Cat.txt")
    assert found is not None
    assert found.name == "CAT.TXT"


@POSIX
def test_masks_are_no_pictures_although_their_folder_is_named_in_another_way(tmp_path):
    make_pictures(tmp_path / "a", 2)
    make_pictures(tmp_path / "a" / "masks", 2, captions=False)
    (tmp_path / "Masks").symlink_to(tmp_path / "a" / "masks")  # a file system without case knows it by this name, too
    concept = Concept(folder="a", mask="files", mask_folder="Masks")
    found = scan(DataConfig(concepts=[concept]), tmp_path)
    assert [item.name for item in found.items] == ["picture00.png", "picture01.png"]
    assert all(item.mask is not None for item in found.items)


def test_rare_letters_do_not_cut_a_line_of_metadata(tmp_path):
    row = {"file_name": "a.png", "text": "one\u2028two\x85three"}
    path = tmp_path / "metadata.jsonl"
    path.write_bytes((json.dumps(row, ensure_ascii=False) + "\r\n").encode())
    found = read_metadata(path)
    assert found.problems == []
    assert found.of("a.png") == ["one\u2028two\x85three"]


@pytest.fixture
def old_disk(tmp_path: Path) -> Path:
    """A folder with a picture whose name is no UTF-8."""
    name = os.fsdecode(OLD_NAME)
    picture = io.BytesIO()
    draw(1)[0].save(picture, "PNG")
    (tmp_path / name).write_bytes(picture.getvalue())
    return tmp_path


@LINUX
def test_a_name_that_is_no_unicode_can_be_trained_on_and_written_down(old_disk, tmp_path_factory):
    concept = Concept(folder=str(old_disk), captions="filename")
    found = scan(DataConfig(concepts=[concept]), old_disk)
    found.raise_errors()
    assert [item.captions for item in found.items] == [("café",)]
    place = str(found.items[0].path)
    out = tmp_path_factory.mktemp("out")
    atomic.write_json(out / "data.json", {"path": place})
    assert json.loads((out / "data.json").read_text(encoding="utf-8")) == {"path": place}
    assert digest.of_json(place) != digest.of_json("")
    with events.EventLog(out / "events.jsonl") as log:
        log.write("warning", message=f"look at {place}")
    (event,) = events.read(out / "events.jsonl")
    assert isinstance(event, events.WarningEvent)
    assert event.message.endswith("caf\\udce9.png")


def test_words_of_a_name_stay_as_they_are_where_it_is_unicode():
    assert words_of_name("ein_schöner-Tag 猫 (2)") == "ein schöner Tag 猫"


# consoles and locales

# An environment whose own path has letters beyond ASCII cannot even start Python in the narrowest locale.
PLAIN_PATHS = (sys.prefix + str(Path(__file__).resolve())).isascii()
NARROWEST = "C" if PLAIN_PATHS else "C.UTF-8"
CONSOLES = {
    "cp1252": {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
    "ascii": {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    "locale C": {"LC_ALL": NARROWEST, "PYTHONUTF8": ""},
}


@pytest.mark.parametrize("console", CONSOLES)
def test_the_command_line_speaks_on_every_console(cli, awkward, console):
    preset = write_preset(awkward / "mein Bild ü 猫.toml", "nirgends ü 猫")
    listed = cli("presets", "list", env=CONSOLES[console])
    assert listed.returncode == 0, listed.stderr
    assert "quickstart" in listed.stdout
    checked = cli("check", str(preset), "--data", env=CONSOLES[console], cwd=awkward)
    assert checked.returncode == 64, checked.stderr
    assert "Traceback" not in checked.stderr
    assert "this folder does not exist" in checked.stderr
    as_json = cli("check", str(preset), "--data", "--json", env=CONSOLES[console], cwd=awkward)
    assert "nirgends" in json.loads(as_json.stdout)["problems"][0]["where"]


class Screen(io.TextIOWrapper):
    """A terminal, as far as a program can tell."""

    def isatty(self) -> bool:
        return True


def test_where_the_system_knows_no_umlauts_a_mistake_is_still_told(cli, awkward):
    preset = write_preset(awkward / "preset.toml", "nirgends ü 猫")
    narrow = {"LC_ALL": NARROWEST, "PYTHONUTF8": "0"}
    checked = cli("check", str(preset), env=narrow, cwd=awkward)
    assert checked.returncode == 0, checked.stderr
    checked = cli("check", str(preset), "--data", env=narrow, cwd=awkward)
    assert checked.returncode != 0
    assert "Traceback" not in checked.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii", "cp437", "utf-16"])
@pytest.mark.parametrize("kind", [Screen, io.TextIOWrapper])
def test_no_letter_stops_a_print(monkeypatch, encoding, kind):
    streams = {name: kind(io.BytesIO(), encoding=encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    _output.make_printable()
    odd = f"ü 猫 {os.fsdecode(OLD_NAME)}"
    _output.problems([Problem(odd, "is odd", "rename it")], as_json=False)
    _output.table(("name",), [(odd,)])
    for stream in streams.values():
        stream.flush()
        shown = "utf-8" if stream.encoding == "ascii" else stream.encoding  # typer does not believe in ASCII screens
        assert re.search(r"caf(\\udce9|\?)\.png", stream.buffer.getvalue().decode(shown))


# processes


def test_a_process_is_known_by_its_start_without_a_proc_folder(monkeypatch):
    real = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/proc/self/stat" and real(path))
    script = "import os; os.path.exists = lambda path: False\nfrom trainers.rundir import lock\n"
    script += f"print(lock.process_start({os.getpid()}), flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == lock.process_start(os.getpid())
    assert lock.process_start(child.pid) not in (None, lock.process_start(os.getpid()))
    child.kill()
    child.communicate()
    assert lock.process_start(child.pid) is None


@POSIX
def test_ctrl_break_asks_for_a_stop_where_the_system_has_it(monkeypatch, capfd):
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR1, raising=False)
    with listening(StopRequest()) as stop:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.reason == "SIGUSR1"
    assert "finishing this step" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_signals_are_left_alone_outside_the_main_thread():
    asked: list[bool] = []

    def work() -> None:
        with listening(StopRequest()) as stop:
            asked.append(bool(stop))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert asked == [False]


# source text

ONE_SYSTEM_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "msvcrt", "winreg", "_winapi"}
TEXT_METHODS = {"read_text", "write_text"}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in [
        ROOT / "start.py",
        *sorted((ROOT / "trainers").rglob("*.py")),
        *sorted((ROOT / "models").rglob("*.py")),
    ]:
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_every_text_file_is_opened_with_its_encoding():
    wrong = [f"{path}:{call.lineno}" for path, tree in sources() for call in ast.walk(tree) if lacks_encoding(call)]
    assert wrong == []


def lacks_encoding(call: ast.AST) -> bool:
    """Whether a call reads or writes text in whatever encoding the system is set to."""
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = getattr(getattr(call.func, "value", None), "id", "")
    named = {keyword.arg for keyword in call.keywords}
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if "encoding" in named or None in named:
        return False
    if name in TEXT_METHODS and owner not in ("files", "text_rules"):
        own = isinstance(call.func, ast.Name)  # a function of ours, not the method of a path
        return not own and not any(text.lower().replace("-", "") == "utf8" for text in texts)
    if name == "open" and owner in ("", "io"):
        return not isinstance(call.func, ast.Attribute) and not any("b" in text for text in texts[-1:])
    return owner == "subprocess" and bool(named & {"text", "universal_newlines"})


def test_no_module_needs_what_only_one_system_has():
    wrong = [
        f"{path}:{node.lineno} {name}"
        for path, tree in sources()
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([one.name for one in node.names] if isinstance(node, ast.Import) else [node.module])
        if name in ONE_SYSTEM_ONLY
    ]
    assert wrong == []


def test_a_folder_that_looks_like_the_home_of_nobody_is_told_like_any_other(tmp_path):
    loaded = load_preset(write_preset(tmp_path / "a.toml", "~nobody-of-this-name/pics"))
    (problem,) = scan(loaded.preset.data, loaded.folder).errors
    assert problem.what == "this folder does not exist"
