import pytest

from mmrl.__main__ import main
from mmrl.commands.catalogue.methods import describe_method, format_methods, join_users
from mmrl.commands.catalogue.settings import PRETRAINED, SMALL, describe_setting, format_settings
from mmrl.config.compose import CONF, compose, groups
from mmrl.config.layers.settings import read_paper_setting


@pytest.mark.parametrize("width", [80, 100, 120])
def test_every_method_has_one_line_under_its_theme(width):
    lines = format_methods(width)
    assert max(map(len, lines)) <= width
    theme, themes = "", {}
    for line in lines[1:]:
        if line.startswith("  "):
            themes[line.split()[0].rstrip("*")] = theme
        elif line:
            theme = line
    assert themes == {file.stem: file.parent.name for file in (CONF / "method").rglob("*.yaml")}


def test_a_star_says_that_a_method_has_numbers_of_its_paper():
    names = [line.split()[0] for line in format_methods(100)[1:] if line.startswith("  ")]
    marked = {name.rstrip("*") for name in names if name.endswith("*")}
    assert marked == {name for name in groups()["method"] if read_paper_setting(name)}
    assert "gspo" in marked and len(marked) < len(names)


def test_the_recipes_of_a_method_are_those_that_hydra_composes_with_it():
    recipes = dict(describe_method("grpo"))["recipes"].split(", ")
    assert "grpo_digits_vlm" in recipes and "gspo" not in recipes
    assert all(compose([f"recipe={name}"]).choices.method == "grpo" for name in ("grpo_digits_vlm", "grpo_smollm2"))
    assert "start=sums" in dict(describe_method("sft"))["recipes"].split(", ")


def test_one_method_is_shown_with_its_paper_and_its_numbers(capsys):
    assert main(["list", "methods", "losses/gspo"]) == 0
    shown = capsys.readouterr().out
    for part in ("Group Sequence Policy", "arXiv:2507.18071", "losses", "data.num_minibatches=4", "section 5.1"):
        assert part in shown
    assert dict(describe_method("gspo"))["extends"] == "grpo"


def test_as_many_recipes_are_named_as_fit():
    assert join_users([], 10) == "-" and join_users(["one"], 10) == "one"
    assert join_users(["one", "two"], 10) == "one, two" and join_users(["one", "two", "three"], 11) == "one, two +1"
    assert join_users(["a_very_long_name"], 10) == "a_very_..."


@pytest.mark.parametrize("width", [80, 100])
def test_settings_for_small_policies_come_before_those_for_pretrained_ones(width):
    lines = format_settings(width)
    assert max(map(len, lines)) <= width
    names = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    small, pretrained = lines.index(SMALL), lines.index(PRETRAINED)
    assert sorted(names) == groups()["setting"] and small < pretrained
    places = {line.split()[0]: at for at, line in enumerate(lines) if line.startswith("  ") and line[2] != " "}
    assert small < places["sums"] < pretrained < places["pretrained_text"] and pretrained < places["paper"]


def test_one_setting_is_shown_with_what_it_sets():
    rows = dict(describe_setting("pretrained_text_lora"))
    assert rows["weights"] == "pretrained" and rows["extends"] == "pretrained_text"
    assert "model.optimizer.lr=2e-05" in rows["keys"] and "1e-06" not in rows["keys"]  # its own comes last
    assert "setting" not in rows["keys"]
    assert {"grpo", "gspo"} <= set(dict(describe_setting("sums"))["recipes"].split(", "))


@pytest.mark.parametrize(("group", "name", "near"), [("methods", "gpso", "gspo"), ("settings", "sumz", "sums")])
def test_an_unknown_name_is_refused_with_a_suggestion(group, name, near, capsys):
    assert main(["list", group, name]) == 2
    assert f"Did you mean {near!r}?" in capsys.readouterr().err
