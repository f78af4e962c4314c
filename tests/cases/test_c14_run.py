"""C14 and C16 in whole runs: what is encoded again between two runs that share a cache, and what is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from tests.pictures import draw
from tests.tiny import Workbench, batches_of, family_of
from trainers.core.errors import EXIT_DONE


@contextmanager
def encoded() -> Iterator[dict[str, list[Any]]]:
    """Within the block, collect the pictures (their number) and captions that the model's encoders get."""
    kind = type(family_of("sd15"))
    seen: dict[str, list[Any]] = {"pictures": [], "captions": []}  # captions: one list for each call
    pixels, text = kind.encode_pixels, kind.encode_text

    def encode_pixels(self: Any, vae: Any, batch: Any, eps: Any) -> Any:
        seen["pictures"] += [1] * len(batch)
        return pixels(self, vae, batch, eps)

    def encode_text(self: Any, part: Any, captions: Any) -> Any:
        seen["captions"].append(list(captions))
        return text(self, part, captions)

    with mock.patch.object(kind, "encode_pixels", encode_pixels), mock.patch.object(kind, "encode_text", encode_text):
        yield seen


@pytest.fixture
def own(bench: Workbench) -> Workbench:
    """A workbench with a cache of its own."""
    return Workbench(bench.folder, bench.models, bench.folder / "cache")


def edit_secretly(path: Path) -> None:
    """Another picture of the same name, size in bytes and time of change."""
    before = path.stat()
    draw(40)[0].save(path)
    path.write_bytes(path.read_bytes().ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_c14_one_edited_picture_is_encoded_again_and_the_others_are_not(own: Workbench) -> None:
    path = own.folder / "pictures" / "picture01.png"
    own.preset({})
    data = path.read_bytes()
    path.write_bytes(data + b"\0" * max(0, 4000 - len(data)))  # room for any other picture
    with encoded() as first:
        before = own.run({"run": {"length": "3 steps"}}, "before")
    assert (len(first["pictures"]), len(first["captions"])) == (5, 7)  # five captions, the null one, the negative
    edit_secretly(path)
    with encoded() as second:
        after = own.run({"run": {"length": "3 steps"}}, "after")
    assert (len(second["pictures"]), second["captions"]) == (1, [])
    assert before.losses != after.losses
    with encoded() as third:
        again = own.run({"run": {"length": "3 steps"}}, "again")
    assert third == {"pictures": [], "captions": []}
    assert again.losses == after.losses


def test_c16_dropout_needs_no_new_encoding_and_reaches_every_batch(own: Workbench) -> None:
    with batches_of() as never:
        own.run({"run": {"length": "3 steps"}}, "never")
    with encoded() as seen, batches_of() as always:
        own.run({"run": {"length": "3 steps"}, "data": {"caption_dropout": 1.0}}, "always")
    assert seen == {"pictures": [], "captions": []}
    contexts = [context for step in always for micro in step.micro for context in micro.condition["context"]]
    assert len(contexts) == 5
    assert all(torch.equal(context, contexts[0]) for context in contexts)
    told = [context for step in never for micro in step.micro for context in micro.condition["context"]]
    assert not any(torch.equal(context, contexts[0]) for context in told)


def test_c16_shuffled_tags_are_encoded_in_the_step(own: Workbench) -> None:
    own.preset({})
    for path in (own.folder / "pictures").glob("*.txt"):
        path.write_text("red, round, big, old, wet", encoding="utf-8")
    data = {"shuffle_tags": True, "keep_tags": 1, "caption_dropout": 0.4}
    with encoded() as seen, batches_of() as steps:
        run = own.run({"run": {"length": "6 steps"}, "data": data})
    assert run.code == EXIT_DONE
    micros = [micro for step in steps for micro in step.micro]
    assert all(micro.condition is None for micro in micros)
    captions = [caption for micro in micros for caption in micro.captions]
    assert len(set(captions)) > 3
    assert all(caption.startswith("red, ") and len(caption.split(", ")) == 5 for caption in captions)
    dropped = [drop for micro in micros for drop in micro.dropped.tolist()]
    assert 0 < sum(dropped) < len(dropped)
    calls = iter(seen["captions"])
    for micro in micros:  # in this order, with whatever the preparation encoded in between
        wanted = ["" if drop else text for text, drop in zip(micro.captions, micro.dropped.tolist(), strict=True)]
        assert wanted in calls


def test_c16_a_run_does_not_care_where_captions_are_encoded(own: Workbench) -> None:
    """Tag dropout of a single tag changes nothing but forces encoding in the step; losses stay what they were."""
    own.preset({})
    for number, path in enumerate(sorted((own.folder / "pictures").glob("*.txt"))):
        path.write_text(f"tag{number}", encoding="utf-8")
    cached = own.run({"data": {"caption_dropout": 0.4}}, "cached")
    in_step = own.run({"data": {"caption_dropout": 0.4, "shuffle_tags": True}}, "in step")
    assert in_step.losses == pytest.approx(cached.losses, rel=1e-5)
