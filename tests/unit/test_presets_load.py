"""Reading presets: errors with file and line, --set, extends, names, speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainers.core.errors import Problem, UserError
from trainers.core.facts import Facts
from trainers.presets import document, foreign, schema
from trainers.presets.load import Loaded, load_preset
from trainers.presets.plugins import families
from trainers.presets.preset import resolve

GOOD = """\
version = 1
[run]
length = "40 steps"
[model]
family = "sd15"
[train]
kind = "lora"
[optimizer]
kind = "adamw"
lr = 1e-4
betas = [0.9, 0.99]
[data]
batch = 2
[[data.concepts]]
folder = "pictures"
"""


def write(folder: Path, text: str, name: str = "preset.toml") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file


def load(folder: Path, text: str, *overrides: str) -> Loaded:
    return load_preset(write(folder, text), overrides)


def problems(folder: Path, text: str, *overrides: str) -> tuple[Problem, ...]:
    with pytest.raises(UserError) as caught:
        load(folder, text, *overrides)
    return caught.value.problems


def only(folder: Path, text: str, *overrides: str) -> Problem:
    found = problems(folder, text, *overrides)
    assert len(found) == 1, found
    return found[0]


def test_defaults_come_from_the_family_and_the_file(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD)
    facts = Facts("sd15", "SD", "eps", "ddpm", 4, 8, 64, 512 * 512, default_weights="hub/id")
    resolved = resolve(loaded.preset, facts)
    assert loaded.preset.run.name == "preset"
    assert loaded.preset.objective is None
    assert resolved.objective.kind == "denoising"
    assert resolved.data.area == "512px"
    assert resolved.model.weights == "hub/id"
    assert resolved.export.layouts == ["kohya", "diffusers"]
    flowing = Facts("flow", "Flow", "velocity", "rectified", 16, 8, 16, 3 * 2**19)
    assert resolve(loaded.preset, flowing).objective.kind == "flow_matching"
    assert resolve(loaded.preset, flowing).data.area == "1.5 MP"


def test_optimizer_and_objective_have_a_usual_kind(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD.replace('kind = "adamw"\n', "") + "[objective]\nnoise_offset = 0.05\n")
    assert loaded.preset.optimizer.kind == "adamw"
    assert loaded.preset.objective.kind == "denoising"


def test_digest_names_values_not_text(tmp_path: Path) -> None:
    digest = load(tmp_path, GOOD).digest
    assert load(tmp_path, "# a comment\n" + GOOD.replace("1e-4", "0.0001")).digest == digest
    assert load(tmp_path, GOOD, "optimizer.lr=2e-4").digest != digest


@pytest.mark.parametrize(
    ("old", "new", "place", "what", "remedy"),
    [
        ("version = 1\n", "", "", "version is missing", "version = 1"),
        ('family = "sd15"', 'family = "sd51"', ":5: model.family", 'no model family "sd51"', '"sd15"'),
        ('kind = "lora"', 'kind = "lorra"', ":7: train.kind", '"lorra" is no kind', 'did you mean "lora"'),
        ('kind = "lora"', "", ":6: train", "kind is missing in [train]", '"lora"'),
        ('length = "40 steps"', 'length = "ten"', ":3: run.length", '"ten" is no length', ""),
        ('length = "40 steps"', 'length = "2 hours"', ":3: run.length", "every machine", ""),
        ('length = "40 steps"', "", ":2: run.length", "length is missing in [run]", 'length = "2000 steps"'),
        ("lr = 1e-4", 'lr = "1e-4"', ":10: optimizer.lr", "must be a number", "lr = 0.0001"),
        ("lr = 1e-4", "lr = -1.0", ":10: optimizer.lr", "must be a number above 0", ""),
        ("lr = 1e-4", "lr = nan", ":10: optimizer.lr", "", ""),
        ("batch = 2", "batch = true", ":13: data.batch", "must be a whole number", ""),
        ("batch = 2", "batch = 2.5", ":13: data.batch", "must be a whole number", ""),
        ("batch = 2", 'caption_extensions = "txt"', "data.", "", ""),
        ("[data]", "[dataset]", ":12: dataset", 'no table "dataset"', "[data]"),
        ("batch = 2", "resolution = 768", ":13: data.resolution", "no key", 'area = "768px"'),
        ("batch = 2", "train_batch_size = 3", ":13: data.train_batch_size", "no key", "batch = 3"),
        ("betas", "momentum", ":11: optimizer.momentum", 'of kind "adamw"', "exists only with kind"),
        ('folder = "pictures"', 'foldr = "pictures"', ":15: data.concepts.0.foldr", "no key", '"folder"'),
        ("[run]", "max_train_steps = 9\n[run]", ":2: max_train_steps", "no key", 'length = "9 steps"'),
    ],
)
def test_mistake_is_named_with_its_line_and_remedy(
    tmp_path: Path, old: str, new: str, place: str, what: str, remedy: str
) -> None:
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new, 1))
    assert any(
        f"preset.toml{place}" in problem.where and what in problem.what and remedy in problem.remedy
        for problem in found
    ) or any(place in problem.where and place == "data." for problem in found), [str(problem) for problem in found]
    assert all("pydantic" not in str(problem) for problem in found)


def test_dict_keys_may_be_anything(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD, 'train.ranks."*.attn1.*"=8')
    assert loaded.preset.train.ranks == {"*.attn1.*": 8}
    assert "train.ranks" in only(tmp_path, GOOD, 'train.ranks."*.attn1.*"=x').where


def test_newer_version_is_refused_alone(tmp_path: Path) -> None:
    problem = only(tmp_path, GOOD.replace("version = 1", "version = 7") + "[new_table]\nx = 1\n")
    assert "version 7" in problem.what
    assert "update" in problem.remedy


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("version = 1\n[run]\nname = red chair\n", ":3:8", 'name = "red chair"'),
        ('version = 1\n[run]\nout = "C:\\data"\n', ":3:", "single quotes"),
        ("a = 1\na = 2\n", ":2:", "once"),
        ("[run]\nx = True\n", ":2:", "small letters"),
        ("x =\n", ":1:", "behind the ="),
        ('x = "abc\n', ":1:", "quotation mark"),
        ("run\n", ":1:", "key = value"),
    ],
)
def test_syntax_error_has_line_column_and_remedy(tmp_path: Path, text: str, place: str, remedy: str) -> None:
    problem = only(tmp_path, text)
    assert f"preset.toml{place}" in problem.where
    assert remedy in problem.remedy or remedy.replace("single quotes", "'single quotes'") in problem.remedy


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "preset.toml"
    file.write_bytes("version = 1\n# gr\xfc\xdfe\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"preset\.toml:2: is not UTF-8"):
        load_preset(file)


def test_settings_without_effect_are_refused(tmp_path: Path) -> None:
    text = GOOD + '[schedule]\nkind = "linear"\ncycles = 3\n[compute]\nmicro_batch = 8\n[preview]\nsize = [500, 512]\n'
    places = [problem.where.rpartition("toml")[2] for problem in problems(tmp_path, text)]
    assert places == [":18: schedule.cycles", ":20: compute.micro_batch", ":22: preview.size"]


def test_parts_layouts_and_targets_are_the_family_s(tmp_path: Path) -> None:
    text = GOOD.replace('kind = "lora"', 'kind = "lora"\nparts = ["denoiser", "text_encoder_2"]\ntargets = "atention"')
    found = problems(tmp_path, text + '[export]\nlayouts = ["khoya"]\n')
    places = [problem.where.rpartition(": ")[2] for problem in found]
    assert places == [
        "train.parts.1",
        "train.targets",
        "export.layouts.0",
    ]
    assert '"attention"' in found[1].remedy
    assert '"kohya"' in found[2].remedy


def test_set_reads_toml_else_text(tmp_path: Path) -> None:
    settings = ["run.name=2024", "run.length=3 epochs", "data.concepts.0.folder=my data/it's", "ema.enabled=true"]
    loaded = load(tmp_path, GOOD, *settings, "optimizer.lr=3e-5", 'preview.prompts=["a b", "c"]')
    preset = loaded.preset
    assert (preset.run.name, preset.run.length) == ("2024", "3 epochs")
    assert (preset.ema.enabled, preset.optimizer.lr) == (True, 3e-5)
    assert preset.data.concepts[0].folder == "my data/it's"
    assert preset.preview.prompts == ["a b", "c"]
    assert loaded.text == GOOD


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("optimizer.lr", "KEY=VALUE"),
        ("optimizer.lrr=3", 'no key "lrr"'),
        ("optimizer.lr=fast", "must be a number"),
        ("data.concepts.5.folder=x", "there is no data.concepts.5"),
        ("a b=3", "is no key"),
        ("=3", "is no key"),
    ],
)
def test_mistake_in_set_names_it(tmp_path: Path, override: str, what: str) -> None:
    problem = only(tmp_path, GOOD, override)
    assert problem.where == f"--set {override}"
    assert what in problem.what


def test_extends_puts_values_below_and_keeps_paths(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base/base.toml")
    (tmp_path / "base" / "pictures").mkdir()
    child = 'version = 1\nextends = "base/base.toml"\n[optimizer]\nkind = "lion"\n[run]\nlength = "9 steps"\n'
    loaded = load(tmp_path, child)
    preset = loaded.preset
    assert (preset.run.length, preset.model.family, preset.data.batch) == ("9 steps", "sd15", 2)
    assert preset.optimizer.kind == "lion"
    assert preset.data.concepts[0].folder == "base/pictures"
    assert any("extends" in note for note in loaded.notes)
    bad = write(tmp_path, GOOD.replace("batch", "bacth"), "base/base.toml")
    assert f"{bad}:13: data.bacth" in str(only(tmp_path, child))


def test_extends_in_a_circle_or_to_nowhere(tmp_path: Path) -> None:
    assert "no file" in only(tmp_path, 'version = 1\nextends = "gone.toml"\n').what
    assert "in turn" in only(tmp_path, 'version = 1\nextends = "preset.toml"\n').what


def test_awkward_path(awkward: Path) -> None:
    loaded = load(awkward, GOOD, "run.out=../my runs")
    assert loaded.folder == awkward
    assert loaded.preset.run.out == "../my runs"
    assert str(awkward) in only(awkward, GOOD.replace("batch", "bacth")).where


def test_byte_order_mark_and_windows_lines_stay(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()
    file = tmp_path / "preset.toml"
    file.write_bytes(data)
    document.save(file, load_preset(file).document)
    assert file.read_bytes() == data


def test_missing_file_suggests_a_preset_of_the_suite() -> None:
    with pytest.raises(UserError, match="sd15/lora-12gb"):
        load_preset("sd15/lora-12bg")
    assert load_preset("sd15/lora-12gb").preset.model.family == "sd15"


def test_every_foreign_name_leads_to_a_key_of_ours() -> None:
    for name, hit in foreign.KEYS.items():
        assert schema.find(hit.path), name
        assert name == name.lower().replace("-", "_")
    for table in foreign.TABLES.values():
        assert schema.find(table), table


def test_checking_needs_no_torch_nor_numpy() -> None:
    code = (
        "import sys; from trainers.presets.load import load_preset; from trainers.presets import explain, library;"
        "load_preset('quickstart'); explain.explain_all(); library.list_presets();"
        "print([name for name in ('torch', 'numpy', 'PIL', 'transformers', 'diffusers') if name in sys.modules])"
    )
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
    assert "starter" in families()
