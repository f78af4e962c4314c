"""Errors a person can mend, each with a place and a remedy; anything else that escapes is a bug of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

EXIT_DONE = 0
EXIT_BUG = 1
EXIT_USER = 64
EXIT_RESUMABLE = 75


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (file, line, key or picture), what, and what to do about it."""

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n    -> {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{remedy}"


class UserError(Exception):
    """Something the user can mend. Holds every problem found, not only the first one."""

    def __init__(self, what: str | Sequence[Problem], *, where: str = "", remedy: str = "") -> None:
        self.problems: tuple[Problem, ...]
        if isinstance(what, str):
            self.problems = (Problem(where, what, remedy),)
        else:
            self.problems = tuple(what)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Interrupted(Exception):  # noqa: N818 - an outcome, not an error
    """The run was asked to stop and has saved what is needed to resume (exit code 75)."""


def nearest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name most like `word`, or None when nothing comes near."""
    import difflib

    folded = {name.replace("-", "_").lower(): name for name in known}
    hits = difflib.get_close_matches(word.replace("-", "_").lower(), list(folded), n=1, cutoff=cutoff)
    return folded[hits[0]] if hits else None
