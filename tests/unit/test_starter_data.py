"""The starter model's training pictures: the same every time, captioned with what is drawn, without the cat faces."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models.starter import data, sprites
from models.starter.captions import LINES, LOOK_WORDS, fill
from models.starter.data import render, unseen_ground
from models.starter.pictures import GROUNDS
from models.starter.sprites import CAT_FACES, LOOKS, NPM_PACKAGES, Subject, check_packages
from tests.starter_sprites import SUBJECTS, use_stand_ins
from trainers.core.errors import UserError

HOME = Path(sprites.__file__).parent


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_stand_ins(monkeypatch)
    render(tmp_path, tmp_path / "pictures")
    return tmp_path / "pictures"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_rendering_is_the_same_every_time(rendered: Path, tmp_path: Path) -> None:
    render(tmp_path, tmp_path / "again")
    assert digests(rendered) == digests(tmp_path / "again")


def test_another_seed_draws_other_pictures(rendered: Path, tmp_path: Path) -> None:
    render(tmp_path, tmp_path / "other", seed=1)
    first, other = digests(rendered), digests(tmp_path / "other")
    assert first.keys() == other.keys()
    assert first != other


def test_every_subject_and_look_is_drawn_on_all_grounds_but_one(rendered: Path) -> None:
    pictures = sorted(rendered.glob("*.png"))
    assert len(pictures) == len(SUBJECTS) * len(LOOKS) * (len(GROUNDS) - 1)
    names = list(GROUNDS)
    for number in range(len(SUBJECTS)):
        for index, look in enumerate(LOOKS):
            own = [path.stem for path in pictures if path.stem.startswith(f"{number:03d}-") and look in path.stem]
            drawn = {stem.rpartition("_")[2] for stem in own}
            assert set(names) - drawn == {names[unseen_ground(number, index)]}


def test_every_ground_is_left_out_equally_often() -> None:
    counts = np.bincount([unseen_ground(subject, look) for subject in range(310) for look in range(3)])
    assert len(counts) == len(GROUNDS)
    assert counts.max() == counts.min()


def test_the_core_list_is_a_part_of_the_wide_one_and_drawn_alike(
    rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = sprites.core_numbers()
    assert len(numbers) == len(set(numbers)) == 105
    assert max(numbers) < 313
    monkeypatch.setattr(data, "core_numbers", lambda: (1,))
    render(tmp_path, tmp_path / "core", core=True)
    core = digests(tmp_path / "core")
    assert core == {name: one for name, one in digests(rendered).items() if name.startswith("001-") or name == "NOTICE"}


def test_pictures_show_their_ground(rendered: Path) -> None:
    for path in rendered.glob("*.png"):
        with Image.open(path) as picture:
            pixels = np.asarray(picture).astype(int)
        wanted = np.array(GROUNDS[path.stem.rpartition("_")[2]])
        assert pixels.shape == (128, 128, 3)
        assert abs(pixels[0, 0] - wanted).max() <= 4


def test_captions_mention_what_is_drawn(rendered: Path) -> None:
    for path in rendered.glob("*.txt"):
        number, look, ground = int(path.stem[:3]), *path.stem.split("_")[1:]
        lines = path.read_text(encoding="utf-8").splitlines()
        assert 10 <= len(lines) == len(set(lines)) <= LINES
        assert all(any(name in line for name in SUBJECTS[number].names) for line in lines)
        assert sum(ground in line for line in lines) >= len(lines) - 1
        assert sum(any(word in line for word in LOOK_WORDS[look]) for line in lines) >= len(lines) - 2
        others = set(GROUNDS) - {ground}
        assert not any(f" {other}" in line for line in lines for other in others)


def test_articles_are_english() -> None:
    assert fill("{a_name} on a {ground} background", "umbrella", "flat", "orange") == (
        "an umbrella on an orange background"
    )
    assert fill("a {ground} picture with a {name}", "disc", "3d", "orange") == "an orange picture with a disc"


def test_the_dreambooth_subject_is_no_subject_of_the_base_model() -> None:
    lines = (HOME / "subjects.txt").read_text(encoding="utf-8").splitlines()
    labels = [line.partition("=")[0].strip() for line in lines if line.strip() and not line.startswith("#")]
    assert len(labels) == len(set(labels)) == 313
    assert {label for label in labels if "cat" in label.split()} == {"cat", "black cat"}


@pytest.mark.parametrize("code", sorted(CAT_FACES))
def test_a_cat_face_is_refused_as_a_subject(code: str) -> None:
    with pytest.raises(ValueError, match="cat face"):
        sprites._check_distinct([Subject("aa", ("disc",)), Subject(code, ("some cat",))])


def test_a_name_belongs_to_one_subject() -> None:
    with pytest.raises(ValueError, match="two subjects"):
        sprites._check_distinct([Subject("aa", ("disc",)), Subject("bb", ("ball", "disc"))])


def test_absent_packages_are_named_with_the_command(tmp_path: Path) -> None:
    present = tmp_path / "node_modules" / NPM_PACKAGES[0].rpartition("@")[0]
    present.mkdir(parents=True)
    with pytest.raises(UserError) as caught:
        check_packages(tmp_path)
    problem = caught.value.problems[0]
    assert f"npm install --prefix {tmp_path}" in problem.remedy
    assert all(package in problem.remedy for package in NPM_PACKAGES[1:])
    assert NPM_PACKAGES[0] not in problem.remedy


def test_an_absent_renderer_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError) as caught:
        check_packages(tmp_path)
    assert [problem.remedy.split()[0] for problem in caught.value.problems] == ["npm", "pip"]
