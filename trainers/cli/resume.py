"""`trainers resume`: go on with a run that was stopped."""

from __future__ import annotations

from trainers.cli._options import CacheOption, QuietOption, RunArgument, SetOption, run_folder


def resume(
    run_dir: RunArgument, settings: SetOption = None, cache: CacheOption = None, quiet: QuietOption = False
) -> int:
    """Go on with a run from its newest whole checkpoint, exactly as if it had never stopped."""
    from trainers.launch import local

    folder = run_folder(run_dir)
    return local.resume(folder, list(settings or ()), cache=str(cache) if cache else None, quiet=quiet)
