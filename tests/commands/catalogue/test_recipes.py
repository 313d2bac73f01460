import pytest

from mmrl.__main__ import main
from mmrl.commands.catalogue.recipes import KINDS, find_kind, format_recipes, resolve_groups, start_recipes
from mmrl.config.compose import compose, groups


@pytest.mark.parametrize("recipe", ["grpo", "flow_sde_ppo", "sft_start", "rl100", "metra"])
def test_groups_are_those_that_hydra_chooses(recipe):
    chosen = {group: option for group, option in resolve_groups(recipe).items() if option}
    assert chosen == dict(compose([f"recipe={recipe}"]).choices)


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        ("grpo", "text"),
        ("papo", "VLM"),
        ("flow_push", "VLA"),
        ("rlcm", "VLA"),  # its policy is a class of its own paper
        ("sac_pixels", "control"),
        ("dpo", "preference"),
        ("embedding_reward", "preference"),
        ("oreo", "offline"),
        ("flow_clone", "offline"),
    ],
)
def test_kind_follows_from_the_objective_the_rollout_and_the_policy(recipe, kind):
    assert find_kind(recipe) == kind


def test_start_recipes_are_named_by_a_warm_start_stage():
    starts = start_recipes()
    assert {"sft_start", "search_start", "programs_start", "self_correction_start", "clone_vla", "flow_clone"} <= starts
    assert not {"grpo", "sac", "demo_vla", "dpo"} & starts


def test_every_recipe_has_one_line_with_minutes_and_verdict():
    lines = format_recipes(100)
    assert max(map(len, lines)) <= 100
    rows = {line.split()[0].rstrip("*"): line for line in lines if line.startswith("  ")}
    assert sorted(rows) == sorted([*groups()["recipe"], "recipe"])
    assert [heading for heading in KINDS.values() if heading not in lines] == []
    assert rows["mopps"].split()[-2:] == ["1.0", "helps"]  # docs hold its result
    assert rows["rloo"].split()[-2:] == ["-", "-"]
    assert "sft_start*" in rows["sft_start"] and "2402.14740" in rows["rloo"]


def test_one_recipe_is_shown_with_its_paper_and_groups(capsys):
    assert main(["list", "recipes", "dr_grpo"]) == 0
    shown = capsys.readouterr().out
    for part in ("Understanding R1-Zero-Like Training", "(2025)", "arXiv:2503.20783", "exact", "objective=clip"):
        assert part in shown


def test_an_unknown_recipe_is_refused_with_a_suggestion(capsys):
    assert main(["list", "recipes", "grop"]) == 2
    assert "Did you mean 'grpo'?" in capsys.readouterr().err
