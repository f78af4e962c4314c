"""Every family once per test file, on its own tiny instance."""

from __future__ import annotations

import pytest

from tests.family_case import FAMILIES, Case
from trainers.core import discover


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family = discover.load("models", request.param, "family").Family()
    return Case(family, family.tiny(tmp_path_factory.mktemp(request.param) / "tiny ü"))
