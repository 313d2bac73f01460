import pytest

from mmrl.__main__ import main
from mmrl.commands.catalogue.recipes import describe_recipe, describe_start, format_recipes, resolve_groups
from mmrl.commands.catalogue.runs import RunOption
from mmrl.config.compose import CONF, compose, groups
from mmrl.config.layers.files import read_run

THEMES = sorted(folder.name for folder in (CONF / "method").iterdir() if folder.is_dir())


def read(group: str, name: str) -> RunOption:
    return RunOption(group, name, read_run({group: name}))


@pytest.mark.parametrize(
    ("group", "name"),
    [("recipe", name) for name in ("grpo", "flow_sde_ppo", "rl100", "metra", "flow_push")]
    + [("start", "sums"), ("start", "openvlthinker_traces")],
)
def test_groups_are_those_that_hydra_chooses(group, name):
    chosen = {each: option for each, option in resolve_groups(read(group, name)).items() if option}
    assert chosen == dict(compose([f"{group}={name}"]).choices)


@pytest.mark.parametrize(
    ("recipe", "theme"),
    [
        ("grpo", "losses"),
        ("grpo_digits_vlm", "losses"),  # a method in another setting stays in its theme
        ("papo", "vision"),
        ("flow_push", "robots"),
        ("rlcm", "robots"),  # its policy is a class of its own paper
        ("sac_pixels", "control"),
        ("dpo", "preferences"),
        ("embedding_reward", "preferences"),
        ("oreo", "offline"),
    ],
)
def test_a_recipe_stands_under_the_theme_of_its_method(recipe, theme):
    lines = format_recipes(100)
    start = lines.index(theme)
    end = lines.index("", start)
    assert recipe in [line.split()[0] for line in lines[start + 1 : end]]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_every_recipe_has_one_line_with_minutes_and_verdict(width):
    lines = format_recipes(width)
    assert max(map(len, lines)) <= width
    rows = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert sorted(rows) == sorted([*groups()["recipe"], "recipe"])
    assert [theme for theme in THEMES if theme not in lines] == []
    assert rows["mopps"].split()[-2:] == ["1.0", "helps"]  # docs hold its result
    assert rows["rloo"].split()[-2:] == ["-", "-"]
    assert "Back to Basics: Revisit" in rows["rloo"]
    assert ("2402.14740" in rows["rloo"]) == (width > 80)  # a narrow line has the title alone


def test_one_recipe_is_shown_with_its_method_setting_and_paper(capsys):
    assert main(["list", "recipes", "dr_grpo"]) == 0
    shown = capsys.readouterr().out
    for part in ("Understanding R1-Zero-Like Training", "(2025)", "arXiv:2503.20783", "exact", "objective=clip"):
        assert part in shown
    rows = dict(describe_recipe("gspo"))
    assert rows["method"] == "gspo (theme: losses)" and rows["setting"].startswith("sums: Sums of two numbers")
    assert rows["source"] == "arXiv:2507.18071, equations 5 to 7" and rows["differs"] == "none"
    assert rows["paper_setting"].startswith("data.num_minibatches=4 (section 5.1; ")
    assert rows["file"].endswith("conf/recipe/losses/gspo.yaml")
    assert rows["begins with"] == "sft: start=sums"


def test_what_a_recipe_adds_to_its_paper_is_shown_in_place_of_the_method_s():
    rows = dict(describe_recipe("flow_push"))
    assert rows["differs"].startswith("as flow_sde_grpo; partial progress") and "method" in rows
    assert rows["source"] == dict(describe_recipe("flow_sde_grpo"))["source"]


def test_a_start_is_shown_with_the_recipes_that_begin_with_it():
    rows = dict(describe_start("sums"))
    recipes = rows["start of"].split(", ")
    assert {"grpo", "gspo"} <= set(recipes) and not {"grpo_smollm2", "dpo", "sac"} & set(recipes)
    assert rows["method"].startswith("sft ") and rows["does"].startswith("Supervised fine-tuning")
    assert "start=openvlthinker_traces" in dict(describe_start("openvlthinker"))["start of"].split(", ")
    assert "start=openvlthinker_traces" in dict(describe_recipe("openvlthinker"))["start of"]  # a stage of a recipe


def test_a_stage_that_a_later_file_takes_out_is_none():
    assert read("recipe", "eag_rl").stages["search"][1] == "trainer.callbacks.warm_start.stages=null"
    assert read("start", "sums").stages == {} and list(read("recipe", "gkd").stages) == ["teacher", "sft"]
    composed = compose(["recipe=demo_vla"]).trainer.callbacks.warm_start.stages
    assert read("recipe", "demo_vla").stages == {stage: list(words) for stage, words in composed.items() if words}


def test_a_recipe_of_the_working_directory_is_yours(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf" / "recipe"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("# @package _global_\n# GRPO for one idea\ndefaults: [grpo]\n")
    lines = format_recipes(100)
    assert lines[2] == "yours"
    assert lines[3].split() == ["mine", "GRPO", "for", "one", "idea", "-", "conf/"] and lines[5] == THEMES[0]
    assert main(["list", "recipes", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "grpo (theme: losses)" in shown and "conf/recipe/mine.yaml" in shown


def test_long_names_and_origins_leave_room_for_the_papers(tmp_path, monkeypatch):
    monkeypatch.setenv("MMRL_CONFIG_DIR", str(tmp_path))
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / f"{'long' * 15}.yaml").write_text("# @package _global_\n# Mine\ndefaults: [grpo]\n")
    assert format_recipes(80)[3].split() == ["long" * 15, "Mine", "-", "--config-dir"]
    (tmp_path / "recipe" / f"{'long' * 15}.yaml").rename(tmp_path / "recipe" / "short.yaml")
    assert max(map(len, format_recipes(80))) <= 80


def test_an_unknown_recipe_is_refused_with_a_suggestion(capsys):
    assert main(["list", "recipes", "grop"]) == 2
    assert "Did you mean 'grpo'?" in capsys.readouterr().err
