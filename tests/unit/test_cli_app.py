"""Exit codes, messages and JSON of the command line, whatever happens inside a command."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainers.cli import _output
from trainers.cli.app import main
from trainers.core.errors import Interrupted, Problem, UserError

PROBLEMS = UserError(
    [Problem("a.toml:3", "no such key", 'did you mean "lr"?'), Problem("pictures/ü.png", "is cut off")]
)


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `trainers models` meets inside: an exception to raise, by "raise"."""
    plan: dict[str, Any] = {}

    def names(package: str) -> tuple[str, ...]:
        if "raise" in plan:
            raise plan["raise"]
        return ()

    monkeypatch.setattr("trainers.core.discover.names", names)
    return plan


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PROBLEMS, 64),
        (UserError("wrong", where="here", remedy="do that"), 64),
        (Interrupted("saved at step 7"), 75),
        (ValueError("a bug"), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 1),
    ],
)
def test_exit_codes(outcome: dict[str, Any], error: BaseException, code: int) -> None:
    outcome["raise"] = error
    assert main(["models"]) == code


def test_problems_are_numbered_and_show_place_and_remedy(
    outcome: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    outcome["raise"] = PROBLEMS
    main(["models"])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "2 problems:",
        "  1. a.toml:3: no such key",
        '     -> did you mean "lr"?',
        "  2. pictures/ü.png: is cut off",
    ]


def test_no_trace_unless_asked_for(outcome: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    outcome["raise"] = ValueError("a bug")
    main(["models"])
    quiet = capsys.readouterr().err
    assert "Traceback" not in quiet
    assert "ValueError: a bug" in quiet
    assert "test_cli_app.py:" in quiet
    for arguments in (["-v", "models"], ["models", "--verbose"]):
        assert main(arguments) == 1
        assert "Traceback" in capsys.readouterr().err


def test_json_is_one_document_also_for_errors(outcome: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"families": []}
    outcome["raise"] = PROBLEMS
    assert main(["models", "--json"]) == 64
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert [problem["where"] for problem in answer["problems"]] == ["a.toml:3", "pictures/ü.png"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["modles"], "models"),
        (["run"], "PRESET"),
        (["models", "--nonsense"], "--nonsense"),
        (["sample", "x", "--prompt", "y", "--out", "z.png", "--steps", "many"], "steps"),
        (["sample", "x", "--prompt", "y", "--out", "folder"], "no picture file"),
    ],
)
def test_a_wrong_command_line_is_the_users_to_mend(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 64
    said = capsys.readouterr().err
    assert word in said
    assert "--help" in said


def test_without_arguments_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    printed = capsys.readouterr()
    assert "Usage" in printed.out + printed.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("trainers 0.")


def test_the_exit_code_of_a_run_is_passed_on(monkeypatch: pytest.MonkeyPatch, root: Any) -> None:
    monkeypatch.setattr("trainers.launch.local.run", lambda *arguments, **named: 75)
    assert main(["run", str(root / "pyproject.toml")]) == 75


def test_json_holds_paths_and_records(capsys: pytest.CaptureFixture[str], root: Any) -> None:
    _output.document({"path": root, "problem": Problem("a", "b"), "set": {"z", "y"}})
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"path": str(root), "problem": {"where": "a", "what": "b", "remedy": ""}, "set": ["y", "z"]}
    with pytest.raises(TypeError, match="no JSON value"):
        _output.document(object())


def test_cells_of_a_table_are_literal_text(capsys: pytest.CaptureFixture[str]) -> None:
    _output.table(("a", "b"), [("[bold]x[/bold]", "[2, 3]")])
    printed = capsys.readouterr().out
    assert "[bold]x[/bold]" in printed
    assert "[2, 3]" in printed
