"""`trainers models`: the model families that can be trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainers.cli import _output
from trainers.cli._options import JsonOption
from trainers.core import discover

if TYPE_CHECKING:
    from trainers.core.facts import Facts


def models(as_json: JsonOption = False) -> None:
    """Show the model families that can be trained, and what is known of each."""
    families: list[Facts] = [discover.load("models", name, "facts").FACTS for name in discover.names("models")]
    if as_json:
        _output.document({"families": families})
        return
    _output.table(
        ("name", "model", "predicts", "size", "denoiser", "default weights"),
        [
            (
                facts.name,
                facts.title,
                facts.prediction,
                f"{round(facts.native_area**0.5)} px",
                f"{facts.parameters.get('denoiser', 0) / 1e6:,.0f} M weights",
                facts.default_weights,
            )
            for facts in families
        ],
    )
