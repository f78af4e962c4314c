"""The parts of a preset that are found, not listed: adapters, objectives, optimizers and model families."""

from __future__ import annotations

import importlib.util
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from trainers.core import discover
from trainers.core.errors import UserError
from trainers.core.facts import Facts
from trainers.core.plugin import Config

PLUGIN_PACKAGES = {
    "train": "trainers.adapters",
    "objective": "trainers.objectives",
    "optimizer": "trainers.optimizers",
}
"""Table of a preset -> the package whose modules are its kinds."""

OBJECTIVE_OF_PATH = {"ddpm": "denoising", "rectified": "flow_matching"}
"""The objective a family is trained with when the preset names none, by the path of its facts."""


@cache
def configs(package: str) -> dict[str, type[Config]]:
    """Return kind -> Config class of every plug-in in `package`. Imports the modules, which must be free of torch."""
    found: dict[str, type[Config]] = {}
    for name in discover.names(package):
        config = discover.load(package, name).Config
        found[config.model_fields["kind"].annotation.__args__[0]] = config
    return found


def choice(package: str) -> Any:
    """Return the type of "one of the Configs of `package`, told apart by `kind`".

    A discriminated union needs two members; a single plug-in is used as a plain type.
    """
    members = list(configs(package).values())
    if len(members) == 1:
        return members[0]
    return Annotated[reduce(or_, members), Field(discriminator="kind")]


@cache
def families() -> tuple[str, ...]:
    """List the model families: folders of `models` that have facts."""
    return tuple(name for name in discover.names("models") if importlib.util.find_spec(f"models.{name}.facts"))


def facts_of(family: str) -> Facts:
    """Return the facts of a model family, without loading torch. Raises UserError with a hint for an unknown name."""
    if family not in families():
        known = ", ".join(families())
        raise UserError(f'there is no model family "{family}"', where="model.family", remedy=f"known families: {known}")
    facts: Facts = discover.load("models", family, "facts").FACTS
    return facts
