"""Objectives, one file each: a Config and build(config, facts) -> Objective. Torch is imported only by build."""
