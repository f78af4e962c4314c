"""C13: spaces, umlauts, Chinese and an apostrophe in every path give the same run; and no network is needed for it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conftest import Cli
from tests.pictures import make_pictures
from tests.tiny import Finished, Workbench, same, tiny_model
from trainers.core.errors import EXIT_DONE


def test_an_awkward_path_gives_the_same_losses(
    bench: Workbench, awkward: Path, cli: Cli, no_sockets: dict[str, str]
) -> None:
    settings = {
        "run": {"length": "3 steps"}, "preview": {"prompts": ["ein Bär, 猫"], "steps": 2, "size": [64, 64]},
        "export": {"layouts": ["kohya", "diffusers"]},
    }  # fmt: skip
    plain = bench.run(settings, "plain")
    shutil.copytree(tiny_model(bench.models), awkward / "a model")
    make_pictures(awkward / "pictures", 5)
    odd = Workbench(awkward, bench.models, awkward / "cache")
    preset = odd.preset({**settings, "model": {"weights": "a model"}}, name="it's ü 猫")
    out = awkward.parent / "out put" / "rün 1"
    done = cli("run", preset, "--out", out, cwd=awkward.parent, env=no_sockets)
    assert done.returncode == EXIT_DONE, done.stdout + done.stderr
    run = Finished(out, done.returncode)
    assert run.losses == plain.losses
    assert len(run.losses) == 3
    assert same(run.weights(3), plain.weights(3))
    assert {path.name for path in (out / "exports").iterdir()} == {"rün 1.safetensors", "rün 1-diffusers.safetensors"}
    assert (out / "samples" / "overview.png").exists()
