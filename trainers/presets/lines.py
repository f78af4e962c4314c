"""Where in a preset file each key stands, so that an error can name its line."""

from __future__ import annotations

from dataclasses import dataclass, field

Path = tuple[str | int, ...]
"""Way to a value: names of tables and keys, and numbers of list entries."""

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


@dataclass
class _Scanner:
    """Walks over the text of a TOML file that is known to be valid."""

    text: str
    at: int = 0
    table: Path = ()
    found: dict[Path, int] = field(default_factory=dict)
    counts: dict[Path, int] = field(default_factory=dict)

    def scan(self) -> dict[Path, int]:
        while self._skip_blank(newlines=True):
            if self.text[self.at] == "[":
                self._header()
            else:
                self._pair(self.table)
        return self.found

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def _skip_blank(self, *, newlines: bool) -> bool:
        """Skip spaces and comments; tell whether anything is left."""
        blank = " \t\r\n" if newlines else " \t"
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in blank:
                self.at += 1
            else:
                return True
        return False

    def _header(self) -> None:
        line = self._line()
        double = self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        path = self._inside_lists(self._keys("]"), last=not double)
        self.at += 2 if double else 1
        if double:
            self.counts[path] = self.counts.get(path, -1) + 1
            self.found.setdefault(path, line)
            path = (*path, self.counts[path])
        self.table = path
        self.found.setdefault(path, line)

    def _inside_lists(self, keys: list[str], *, last: bool) -> Path:
        """Turn the names of a header into a path: a list of tables stands for its newest entry."""
        path: Path = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            if path in self.counts and (last or number < len(keys) - 1):
                path = (*path, self.counts[path])
        return path

    def _keys(self, end: str) -> list[str]:
        """Read a dotted key up to `end`, which is left standing."""
        keys: list[str] = []
        while self._skip_blank(newlines=False) and self.text[self.at] != end:
            if self.text[self.at] == ".":
                self.at += 1
            elif self.text[self.at] in "\"'":
                keys.append(self._string())
            else:
                start = self.at
                while self.text[self.at] not in f" \t.{end}":
                    self.at += 1
                keys.append(self.text[start : self.at])
        return keys

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = (*table, *self._keys("="))
        self.at += 1
        for length in range(len(table) + 1, len(path) + 1):
            self.found.setdefault(path[:length], line)
        self._skip_blank(newlines=False)
        self._value(path)

    def _value(self, path: Path) -> None:
        """Skip a value; entries of lists and inline tables are noted too."""
        mark = self.text[self.at]
        if mark in "\"'":
            self._string()
        elif mark == "[":
            self._list(path)
        elif mark == "{":
            self._inline_table(path)
        else:
            while self.at < len(self.text) and self.text[self.at] not in "\r\n#,]}":
                self.at += 1

    def _list(self, path: Path) -> None:
        self.at += 1
        number = 0
        while self._skip_blank(newlines=True) and self.text[self.at] != "]":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self.found.setdefault((*path, number), self._line())
            self._value((*path, number))
            number += 1
        self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while self._skip_blank(newlines=True) and self.text[self.at] != "}":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._pair(path)
        self.at += 1

    def _string(self) -> str:
        """Read any of the four kinds of strings and return its content, near enough for a key."""
        quote = self.text[self.at]
        mark = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(mark)
        out: list[str] = []
        while not self.text.startswith(mark, self.at):
            if quote == '"' and self.text[self.at] == "\\":
                self.at += 1
                out.append(_ESCAPES.get(self.text[self.at], self.text[self.at]))
            else:
                out.append(self.text[self.at])
            self.at += 1
        self.at += len(mark)
        while len(mark) == 3 and self.text.startswith(quote, self.at):  # a text may end in quotes of its own
            self.at += 1
        return "".join(out)


def lines_of(text: str) -> dict[Path, int]:
    """Return the line, counted from 1, of every table, key and list entry of a valid TOML text."""
    return _Scanner(text).scan()
