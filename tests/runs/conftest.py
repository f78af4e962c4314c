"""The tiny model and the workbench, made once for all tests of a session."""

from __future__ import annotations

from tests.tiny import bench, session_folder

__all__ = ["bench", "session_folder"]
