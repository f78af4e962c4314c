"""The tests. A package, so that helpers are imported as `tests.pictures`, whatever else is installed."""
