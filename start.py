"""Set the suite up on this machine the first time, then run it: `python start.py run presets/quickstart.toml`.

Needs only Python 3.10-3.13 and its standard library. Everything is installed into the folder `.venv` beside this file;
a stamp written last tells that the installation is whole, so that one that was cut off is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "trainers-install.json"
OLDEST, NEWEST = (3, 10), (3, 13)
FREE_BYTES_NEEDED = 4 * 10**9
EXIT_FAILED, EXIT_USAGE = 1, 64
TEXT: dict[str, Any] = {"stdin": subprocess.DEVNULL, "encoding": "utf-8", "errors": "replace"}
CARD_TOOLS = ("nvidia-smi", "rocm-smi", "amd-smi", "xpu-smi")
TORCH_HOST = "download.pytorch.org"
# The build of torch 2.13 that fits system and card; "" is that of the default index (Linux: CUDA 13.0, others: CPU).
BUILDS = {
    "linux": {"": "cpu", "nvidia": "", "nvidia-old": "cu126", "amd": "rocm7.2", "intel": "xpu"},
    "win32": {"": "cpu", "nvidia": "cu130", "nvidia-old": "cu126", "amd": "cpu", "intel": "xpu"},
}
PIP_TROUBLE = {
    "No space left on device|Errno 28|not enough space": "The disk is full.\n"
    "  -> free some gigabytes and call again; what was begun is cleaned up by itself",
    "NewConnection|NameResolution|getaddrinfo|Failed to establish|timed out|ProxyError|ConnectionReset": "The packages "
    "could not be fetched: there seems to be no internet, or a proxy is in the way.\n"
    "  -> go online once and call again, or set HTTPS_PROXY; without internet, put the wheels into a folder\n"
    "     and set PIP_FIND_LINKS to it and PIP_NO_INDEX=1",
    "No matching distribution found for torch": "There is no build of torch for this system and this Python.\n"
    "  -> use a 64-bit Python 3.12",
}
HELP = """\
Train image models on your own pictures.

  python start.py run presets/quickstart.toml   train the first example (about five minutes on two CPU cores)
  python start.py presets list                  what else can be trained
  python start.py check PRESET                  is everything right with a preset and its pictures?
  python start.py plan PRESET                   what a run would do, before it does it
  python start.py doctor                        what this machine can do, and what is missing
  python start.py --help-all                    every command
  python start.py install EXTRA...              add optional parts: {extras}
  python start.py test [--quick] [ARGS]         run the tests; ARGS go to pytest

The first call sets up the folder .venv beside this file; that takes a few minutes and needs the internet once.
"""


class SetupError(Exception):
    """The environment could not be made; the text says why and what to do."""


def python_problem(version: tuple[int, ...]) -> str | None:
    """Say what is wrong with a Python version, or None."""
    if OLDEST <= tuple(version[:2]) <= NEWEST:
        return None
    found = "{}.{}".format(*version)
    return (
        f"This is Python {found}; Python 3.10 to 3.13 is needed.\n"
        "  -> install Python 3.12 and call it by name, for example: python3.12 start.py (Windows: py -3.12 start.py)"
    )


def ask(*command: str) -> str:
    """Return what a tool of the system says; "" where it is missing or fails."""
    tool = shutil.which(command[0])
    if tool is None:
        return ""
    try:
        answer = subprocess.run([tool, *command[1:]], capture_output=True, timeout=30, check=False, **TEXT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def find_card() -> str:
    """Name the graphics card as a key of BUILDS; "" where no driver shows one that torch can use."""
    if "GPU" in ask("nvidia-smi", "-L"):
        details = ask("nvidia-smi", "--query-gpu=compute_cap,driver_version", "--format=csv,noheader")
        return "nvidia-old" if needs_cuda12(details) else "nvidia"
    if shutil.which("rocm-smi") or shutil.which("amd-smi"):
        return "amd"
    return "intel" if shutil.which("xpu-smi") else ""


def needs_cuda12(details: str) -> bool:
    """Tell whether cards ("7.5, 560.94" a line) or their driver are too old for CUDA 13, which serves 7.5 and r580 up.

    A driver that is too old for a card that CUDA 12.6 does not know (10.0 and up) must be updated in any case.
    """
    cards = [(float(number), int(driver)) for number, driver in re.findall(r"(\d+\.\d+), (\d+)", details)]
    newest, driver = max(cards, default=(7.5, 580))
    return newest < 7.5 or (driver < 580 and newest < 10)


def host_answers(host: str) -> bool:
    """Tell within two seconds whether a connection to a host can be made."""
    reached = threading.Event()

    def connect() -> None:
        with contextlib.suppress(OSError), socket.create_connection((host, 443), timeout=2):
            reached.set()

    thread = threading.Thread(target=connect, daemon=True)  # looking a name up has no timeout of its own
    thread.start()
    thread.join(2)
    return reached.is_set()


def torch_index(system: str, card: str, environ: Mapping[str, str]) -> str:
    """Choose the index torch comes from: PyTorch's own where pip's would give the wrong build; "" is pip's."""
    named = environ.get("TRAINERS_TORCH_INDEX", "").strip()
    build = BUILDS.get(system, {}).get(card, "")
    if named or not build or environ.get("PIP_INDEX_URL") or environ.get("PIP_NO_INDEX"):
        return named
    return f"https://{TORCH_HOST}/whl/{build}" if host_answers(TORCH_HOST) else ""


def install_torch(requirement: str, card: str) -> None:
    """Install the exact torch, from the default place where an index that was only chosen here fails."""
    index = torch_index(sys.platform, card, os.environ)
    try:
        pip_install([requirement, "--index-url", index] if index else [requirement])
    except SetupError:
        if TORCH_HOST not in index or os.environ.get("TRAINERS_TORCH_INDEX"):
            raise
        say(f"  {index} did not work; trying pip's own index ...")
        pip_install([requirement])


def torch_requirement(pyproject: str) -> str:
    """Find the exact torch that the project asks for (Python 3.10 has no TOML reader)."""
    match = re.search(r'"(torch==[0-9][0-9.]*)"', pyproject)
    if match is None:
        raise SetupError("pyproject.toml names no exact torch version.")
    return match.group(1)


def known_extras(pyproject: str) -> tuple[str, ...]:
    """List the optional parts that pyproject.toml offers."""
    section = pyproject.split("[project.optional-dependencies]")[-1].split("\n[")[0]
    return tuple(re.findall(r"^([a-z0-9-]+) = \[", section, flags=re.MULTILINE))


def signature(pyproject: bytes, environ: Mapping[str, str]) -> dict[str, object]:
    """Describe everything that makes an environment another one, in plain JSON values."""
    return {
        "root": str(ROOT),  # scripts and links in an environment hold absolute paths
        "pyproject": hashlib.sha256(pyproject).hexdigest(),
        "torch_index": environ.get("TRAINERS_TORCH_INDEX", ""),
        "card_tools": [tool for tool in CARD_TOOLS if shutil.which(tool)],
    }


def read_stamp() -> dict[str, Any]:
    """Read what was installed; {} where nothing was, or where the file is broken."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and isinstance(stamp.get("extras"), list) else {}


def write_stamp(state: str, wanted: Mapping[str, object], extras: frozenset[str]) -> None:
    """Write the stamp: "installing" before pip starts, "ready" as the very last thing."""
    stamp = {"state": state, **wanted, "interpreter": interpreter(), "extras": sorted(extras)}
    temporary = STAMP.with_suffix(".tmp")
    temporary.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, STAMP)


def is_ready(stamp: Mapping[str, Any], wanted: Mapping[str, object], extras: frozenset[str]) -> bool:
    """Tell whether the environment is whole and holds what is wanted."""
    whole = not must_start_over(stamp, wanted) and stamp.get("pyproject") == wanted["pyproject"]
    return whole and extras <= set(stamp["extras"])


def must_start_over(stamp: Mapping[str, Any], wanted: Mapping[str, object]) -> bool:
    """Tell whether an environment cannot be mended by installing into it again.

    pip takes a package for installed whose files were only half copied, so a cut-off installation is made anew.
    """
    if stamp.get("state") != "ready" or stamp.get("interpreter") != interpreter():
        return True
    return any(stamp.get(key) != wanted[key] for key in ("root", "torch_index", "card_tools"))


def venv_python() -> Path:
    """Return the interpreter of the environment."""
    return VENV / "Scripts" / "python.exe" if os.name == "nt" else VENV / "bin" / "python"


def interpreter() -> str:
    """Return what the environment's interpreter really is; "" where it is missing.

    It changes when the system's Python is replaced by another version, which leaves the environment without packages.
    """
    python = venv_python()
    return os.path.realpath(python) if python.exists() else ""


def child_environment() -> dict[str, str]:
    """Return the environment of a child: UTF-8 everywhere, so that paths may hold any letter on any system."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONHOME"} | {"PYTHONUTF8": "1"}


def lock_file(handle: IO[str]) -> None:
    """Wait for the lock of an open file; the system frees it when the process ends, however it ends."""
    if os.name == "nt":
        import msvcrt

        while True:
            try:
                msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
                return
            except OSError:
                time.sleep(1)
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let a second start wait until the first has finished installing."""
    if not os.access(ROOT, os.W_OK):
        raise SetupError(
            f"The folder {ROOT} cannot be written to.\n"
            "  -> copy the project to a folder of your own, for example in your home folder"
        )
    with open(ROOT / ".venv.lock", "a", encoding="utf-8") as handle:
        lock_file(handle)
        yield


def say(text: str) -> None:
    """Tell how far the setup is; standard output is kept for the command's own words."""
    print(text, file=sys.stderr, flush=True)


def check_disk() -> None:
    """Stop before a disk is filled."""
    free = shutil.disk_usage(ROOT).free
    if free < FREE_BYTES_NEEDED:
        raise SetupError(
            f"Only {free / 1e9:.1f} GB are free on the disk of {ROOT}; the environment needs "
            f"{FREE_BYTES_NEEDED / 1e9:.0f} GB (more with CUDA).\n  -> free some space, or move the project"
        )


def make_venv() -> None:
    """Make an empty environment in place of whatever lies there."""
    command = [getattr(sys, "_base_executable", None) or sys.executable, "-m", "venv", "--clear", str(VENV)]
    result = subprocess.run(command, capture_output=True, env=child_environment(), check=False, **TEXT)
    if result.returncode == 0:
        return
    text = (result.stdout + result.stderr).strip()
    if "ensurepip" in text:
        version = "{}.{}".format(*sys.version_info)
        raise SetupError(
            "This Python cannot make environments: its venv part is missing.\n"
            f"  -> install it, on Debian or Ubuntu: sudo apt install python{version}-venv"
        )
    raise SetupError(f"The environment could not be made in {VENV}:\n{text}")


def pip_install(arguments: Sequence[str]) -> None:
    """Run pip in the environment, showing its steps; PIP_* variables and pip's own settings are respected."""
    command = [str(venv_python()), "-m", "pip", "install", "--no-input", "--progress-bar", "off", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **TEXT
    )  # fmt: skip
    lines: list[str] = []
    with process:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            progress = pip_progress(line)
            if progress:
                say(f"  {progress}")
    if process.returncode != 0:
        raise SetupError(explain_pip(lines))


def pip_progress(line: str) -> str | None:
    """Pick from pip's many lines those that tell a waiting person something: big downloads and the copying."""
    if re.search(r"Downloading .*\([0-9.]+ [MG]B\)", line):
        return line.strip()
    if line.startswith("Installing collected packages:"):
        return f"Installing {line.count(',') + 1} packages ..."
    return line.strip() if line.startswith("ERROR") else None


def explain_pip(lines: Sequence[str]) -> str:
    """Turn the last words of a failed pip into what happened and what to do."""
    known = (meaning for words, meaning in PIP_TROUBLE.items() if re.search(words, "\n".join(lines)))
    return next(known, "pip could not install the packages. Its last words:\n  " + "\n  ".join(lines[-15:]))


def prepare(extras: frozenset[str]) -> None:
    """Make the environment hold the project with `extras`; return at once when it does already."""
    pyproject = (ROOT / "pyproject.toml").read_bytes()
    wanted = signature(pyproject, os.environ)
    if is_ready(read_stamp(), wanted, extras):
        return
    with one_at_a_time():
        stamp = read_stamp()
        if not is_ready(stamp, wanted, extras):
            install(stamp, wanted, extras, pyproject.decode())


def install(stamp: Mapping[str, Any], wanted: Mapping[str, object], extras: frozenset[str], pyproject: str) -> None:
    """Install everything, the stamp last."""
    started = time.monotonic()
    card = find_card()
    extras = extras | (set(stamp.get("extras", ())) & set(known_extras(pyproject)))
    extras |= {"cuda"} if card.startswith("nvidia") else set()
    check_disk()
    if must_start_over(stamp, wanted):
        say(f"Setting up {VENV} (only this first time) ...")
        make_venv()
    else:
        say(f"Bringing {VENV} up to date ...")
    write_stamp("installing", wanted, extras)
    install_torch(torch_requirement(pyproject), card)
    names = ",".join(sorted(extras))
    pip_install(["--editable", f".[{names}]" if names else "."])
    write_stamp("ready", wanted, extras)
    say(f"Ready after {time.monotonic() - started:.0f} s.")


def launch(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Become the command (POSIX), or run it and return its exit code (Windows, which cannot replace a process)."""
    command = [str(venv_python()), *arguments]
    if os.name != "nt":
        os.execve(command[0], command, environment)
    process = subprocess.Popen(command, env=dict(environment))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the child got it too and decides: a run saves and ends with its own code
            continue


def add_extras(names: Sequence[str]) -> int:
    """Install optional parts by name."""
    known = known_extras((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        say(f"There is no optional part {', '.join(unknown)!r}." if unknown else "Say which optional parts.")
        say(f"  -> known: {', '.join(known)}")
        return EXIT_USAGE
    prepare(frozenset(names))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Prepare the environment, then do what is asked; return the exit code."""
    problem = python_problem(sys.version_info[:2])
    if problem:
        say(problem)
        return EXIT_FAILED
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        extras = known_extras((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        print(HELP.format(extras=", ".join(extras)), end="")
        return 0
    try:
        if arguments[0] == "test":
            prepare(frozenset({"test"}))
            os.chdir(ROOT)
            return launch(["-m", "tests", *arguments[1:]], child_environment())
        if arguments[0] == "install":
            return add_extras(arguments[1:])
        prepare(frozenset())
        rest = ["--help"] if arguments[0] == "--help-all" else list(arguments)
        return launch(["-m", "trainers", *rest], child_environment())
    except SetupError as error:
        say(f"\n{error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say("\nStopped. What was begun is completed at the next call.")
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
