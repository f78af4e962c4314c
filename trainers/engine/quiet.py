"""Keep the libraries' chatter off the screen, so that what is printed there means something."""

from __future__ import annotations

import logging
import os
import sys
import warnings

from trainers.memory.collector import collector_paused, keep_imported


def hush_libraries() -> None:
    """Show errors of transformers, diffusers and their helpers only; no bars, no notes about optional packages."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    is_first = "diffusers" not in sys.modules
    with collector_paused():
        import diffusers
        import transformers
    if is_first:
        keep_imported()
    for library in (diffusers, transformers):
        library.utils.logging.set_verbosity_error()
        library.utils.logging.disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(diffusers|transformers|huggingface_hub)\b.*")
