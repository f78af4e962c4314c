"""One measured process: `python -m trainers.engine.bench.child ROLE CASE`. Started by `measure`, by nobody else."""

from __future__ import annotations

import sys

from trainers.engine.bench.gate import Gate
from trainers.engine.bench.spec import Case

# Packages that only extras bring, and diffusers imports at once when they are there: both loops are measured without.
_EXTRAS = ("bitsandbytes", "scipy")


def main(role: str, case: Case) -> None:
    """Play one role. Modules are imported in here: what a role imports is part of what it costs."""
    for name in _EXTRAS:
        sys.modules[name] = None  # type: ignore[assignment]
    gate = Gate()
    if role == "prepare":
        from trainers.engine.bench.prepare import prepare_case

        prepare_case(case)
        gate.end()
    elif role in ("plain", "tuned", "plain encode"):
        from trainers.engine.bench import plain

        plain.encode(case, gate) if role == "plain encode" else plain.train(case, gate, tuned=role == "tuned")
    else:
        from trainers.engine.bench import ours

        ours.encode(case, gate) if role == "our encode" else ours.train(case, gate, cold=role == "cold")


if __name__ == "__main__":
    main(sys.argv[1], Case.from_json(sys.argv[2]))
