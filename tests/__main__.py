"""`python -m tests [--quick] [ARGS]`: pytest in several processes of one thread each; ARGS go to pytest."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def pytest_arguments(arguments: Sequence[str], cpus: int) -> list[str]:
    """Turn `[--quick] [pytest's arguments]` into pytest's arguments."""
    rest = [argument for argument in arguments if argument != "--quick"]
    parallel = ["-n", str(max(1, min(4, cpus))), "--dist", "worksteal"]
    if any(argument.startswith(("-n", "--numprocesses", "--pdb")) for argument in rest):
        parallel = []
    return [*parallel, *(["-m", "not slow"] if len(rest) < len(arguments) else []), *rest]


if __name__ == "__main__":
    import pytest

    sys.exit(pytest.main(pytest_arguments(sys.argv[1:], os.cpu_count() or 1)))
