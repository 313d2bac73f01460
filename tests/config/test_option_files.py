"""Options of the working directory, of --config-dir and of installed packages stand beside mmrl's and hide none."""

import importlib

import pytest

from mmrl.__main__ import main
from mmrl.config import option_files
from mmrl.config.compose import compose
from mmrl.config.option_files import CONF, CONFIG_DIR, find_option, groups, read_comment
from mmrl.core.errors import ConfigError

RECIPE = "# @package _global_\n# sums of mine\ndefaults: [rloo]\ntrainer: {max_epochs: 3}\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    folder = tmp_path / "a, 'folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv(CONFIG_DIR, raising=False)
    option_files._list_installed.cache_clear()
    yield folder
    option_files._list_installed.cache_clear()


def write(folder, text=RECIPE, name="recipe/mine.yaml"):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def check(origin, file):
    assert compose(["recipe=mine", "seed=4"]).trainer.max_epochs == 3
    assert compose(["recipe=mine"]).model.objective == compose(["recipe=rloo"]).model.objective
    found = find_option("recipe", "mine")
    assert found.origin == origin and found.path.samefile(file)


def test_the_working_directory_has_options(here, capsys):
    file = write(here / "conf")
    check("conf/", file)
    assert main(["list", "recipes"]) == 0
    shown = capsys.readouterr().out
    assert "yours" in shown and [line.split()[0] for line in shown.splitlines() if "sums of mine" in line] == ["mine"]
    assert main(["list", "recipes", "mine"]) == 0
    assert "objective=policy_gradient" in capsys.readouterr().out


def test_a_folder_that_is_named_has_options(tmp_path, monkeypatch, capsys):
    file = write(tmp_path / "other")
    monkeypatch.setenv(CONFIG_DIR, "")
    assert main(["list", "--config-dir", str(tmp_path / "other"), "recipes", "mine"]) == 0
    assert "sums" not in capsys.readouterr().err
    check("--config-dir", file)
    assert main(["list", "recipes", f"--config-dir={tmp_path}/nope"]) == 2
    assert "--config-dir" in (said := capsys.readouterr().err) and "no such folder" in said


def test_an_installed_package_has_options(tmp_path, monkeypatch):
    site = tmp_path / "site"
    file = write(site / "their_pack" / "conf")
    info = site / "their_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mmrl.conf]\ntheirs = their_pack.conf\n")
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    check("package theirs", file)
    (info / "entry_points.txt").write_text("[mmrl.conf]\ntheirs = their_pack.nope\n")
    importlib.invalidate_caches()
    option_files._list_installed.cache_clear()
    with pytest.raises(ConfigError, match=r"package 'theirs': .* names 'their_pack.nope', which is no package"):
        groups()


def test_a_name_that_exists_is_refused_with_both_files(here, tmp_path, monkeypatch):
    file = write(here / "conf", name="recipe/grpo.yaml")
    with pytest.raises(ConfigError, match=r"conf/recipe/grpo.yaml: mmrl has a recipe 'grpo' too .* rename the file"):
        compose(["recipe=rloo"])
    file.rename(file.with_name("mine.yaml"))
    write(tmp_path / "other")
    monkeypatch.setenv(CONFIG_DIR, str(tmp_path / "other"))
    with pytest.raises(ConfigError, match="conf/ has a recipe 'mine' too"):
        groups()


def test_a_file_without_its_place_is_refused(here):
    write(here / "conf", "defaults: [grpo]\n")
    with pytest.raises(ConfigError, match=r"mine.yaml: the first line must be '# @package _global_'"):
        groups()


def test_folders_that_are_no_groups_and_a_checkout_of_mmrl_are_left_alone(here):
    write(here / "conf", "nothing: here", name="db/mysql.yaml")
    write(here / "conf", "nothing: here", name="config.yaml")
    assert "db" not in groups() and compose(["recipe=grpo"]).choices.recipe == "grpo"
    write(here / "conf", name="recipe/grpo.yaml")
    write(here, "", name="mmrl/config/option_files.py")
    assert find_option("recipe", "grpo").path.parent == CONF / "recipe" / "losses"


def test_the_comment_of_a_file_is_without_hydras_line():
    assert read_comment("# @package x\n# one\n# two\na: 1\n# three") == "one two"


def test_another_task_drops_the_arguments_of_the_recipes_own():
    cfg = compose(["recipe=grpo_smollm2", "task=dataset", "task.path=q.jsonl", "run_dir=x"])
    assert set(cfg.data.task) == {"_target_", "path", "extract"}  # of grpo_smollm2: digits, question, spaced, extract
    cfg = compose(["recipe=grpo_smollm2", "task=dataset", "task.path=q.jsonl", "task.digits=3", "run_dir=x"])
    assert cfg.data.task.digits == 3  # what is typed stays, so that it is refused by name


def test_a_recipe_that_overrides_the_task_drops_the_arguments_of_the_inherited_ones(here):
    text = "# @package _global_\ndefaults: [grpo_smollm2, override /task: dataset]\ndata: {task: {path: q.jsonl}}\n"
    write(here / "conf", text)
    assert set(compose(["recipe=mine", "run_dir=x"]).data.task) == {"_target_", "path", "extract"}
    write(here / "conf", "# @package _global_\ndefaults: [mine]\nseed: 3\n", name="recipe/heir.yaml")
    assert set(compose(["recipe=heir", "run_dir=x"]).data.task) == {"_target_", "path", "extract"}
    write(here / "conf", text.replace("path: q", "digits: 3, path: q"))
    assert compose(["recipe=mine", "run_dir=x"]).data.task.digits == 3  # its own, so that it is refused by name
    cfg = compose(["recipe=mine", "run_dir=x", "task=arithmetic"])
    assert "path" not in cfg.data.task and cfg.data.task.digits == 3


@pytest.mark.parametrize(
    ("argument", "present"),
    [
        ("data.task=arithmetic", "task=arithmetic"),
        ("model.policy=tiny_text", "policy=tiny_text"),
        ("task.sim=reach", "sim=reach"),
        ("+data.rollout=offline", "rollout=offline"),
        ("trainer.logger=csv", "logger=csv"),
    ],
)
def test_an_option_at_the_key_of_its_group_is_refused_with_the_words_that_work(argument, present):
    with pytest.raises(ConfigError, match=f"is an option of a group, which is named alone: {present}$"):
        compose(["recipe=grpo", argument])
    compose(["recipe=grpo", "trainer.strategy=fsdp2", "data.task.name=arithmetic"])
