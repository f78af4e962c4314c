"""Model folders from the Hugging Face hub: only the files that are needed, and errors a person can act on."""

from __future__ import annotations

import os
import re
from pathlib import Path

from trainers.core.errors import UserError

_ID = re.compile(r"^[\w][\w.-]*/[\w][\w.-]*(@[\w./-]+)?$")
_SMALL = (
    "model_index.json",
    "config.json",
    "*/config.json",
    "scheduler/*.json",
    "tokenizer*/*.json",
    "tokenizer*/merges.txt",
    "*.index*.json",
)
_WEIGHTS = ("*model.safetensors", "*model-*.safetensors", "*.fp16*.safetensors")
"""File names tried one after the other until a part has weights: whole, in pieces, half precision only."""

_ROOT_WEIGHTS = "diffusion_pytorch_model.safetensors"


def looks_like_id(text: str) -> bool:
    """Tell whether `text` has the form owner/name or owner/name@revision."""
    return bool(_ID.match(text))


def fetch(model: str, *, parts: tuple[str, ...], offline: bool) -> Path:
    """Return the local folder of a hub model with the weights of `parts`, downloading what is not in the cache."""
    folder = _get(model, _SMALL, offline)
    for part in parts:
        for pattern in _WEIGHTS:
            if _has_weights(folder / part):
                break
            _get(model, (f"{part}/{pattern}",), offline)
    return folder


def fetch_vae(model: str, *, offline: bool) -> Path:
    """Return the local folder of a VAE on the hub: one of its own, or the one inside a whole model."""
    folder = _get(model, (*_SMALL, _ROOT_WEIGHTS), offline)
    return folder if _has_weights(folder) else fetch(model, parts=("vae",), offline=offline)


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _get(model: str, patterns: tuple[str, ...], offline: bool) -> Path:
    """Call the hub's own client and translate what it says. In its patterns `*` matches "/" too."""
    from huggingface_hub import errors, snapshot_download

    name, _, revision = model.partition("@")
    offline = offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    page = f"https://huggingface.co/{name}"
    try:
        return Path(
            snapshot_download(name, revision=revision or None, allow_patterns=list(patterns), local_files_only=offline)
        )
    except errors.GatedRepoError as error:
        raise UserError(
            f'"{name}" needs its licence accepted',
            remedy=f"accept it at {page}, then log in with: hf auth login",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f'"{name}" has no revision "{revision}"', remedy=f"see {page}/tree/main") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f'there is no folder "{name}" here and no such model on the hub that you may see',
            remedy="check the spelling of the path or name; for a private model log in with: hf auth login",
        ) from error
    except errors.LocalEntryNotFoundError as error:
        remedy = "allow the network once, or give the path of a local folder or file"
        reason = "working offline" if offline else "the hub can't be reached"
        raise UserError(f'"{name}" is not on this machine, and {reason}', remedy=remedy) from error
    except errors.HfHubHTTPError as error:
        raise UserError(
            f'the hub refused "{name}": {_status(error)}', remedy=_REMEDIES.get(_code(error), "try again later")
        ) from error
    except (OSError, getattr(errors, "HTTPError", OSError)) as error:  # the second: a line that drops
        raise UserError(
            f'"{name}" could not be downloaded: {error}', remedy="check the network and the free disk space"
        ) from error


_REMEDIES = {
    401: "log in with: hf auth login",
    403: "your token may not read this model: ask for access on its page, or make a token that can read",
    404: "check the spelling",
    429: "too many requests; wait some minutes, or log in",
}


def _code(error: object) -> int:
    return int(getattr(getattr(error, "response", None), "status_code", 0) or 0)


def _status(error: object) -> str:
    code = _code(error)
    return f"HTTP {code}" if code else str(error)
