"""Every recipe, run at its own defaults from its own start, does what its paper is named for."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from mmrl.config.option_files import CONF
from mmrl.core.types import Episode, Prompt
from mmrl.experiments.acts import read_conditions, read_header, read_records
from tests.acts.__main__ import RECIPES
from tests.acts.conditions import CHANGES, Condition
from tests.acts.run import draw, find_problems, run_recipe, write_records
from tests.acts.watch import Actions, count_changes, count_other_prompts, count_repeats, fingerprints
from tests.composed_words import compose_words
from tests.tiny_recipes import TEXT

ITERATIONS = [{"hints": [0.0], "column/weights": [1.0, 1.0]}, {"hints": [3.0], "column/weights": [0.25, 1.0]}]
TINY = tuple(word for word in TEXT if not word.startswith(("recipe=", "data.evaluation")))


@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("hints", "> 0", (1, 3.0)),
        ("hints", ">= 3", (1, 3.0)),
        ("hints", "< 0", None),
        ("column/weights", "!= 1", (1, 0.25)),
        ("column/weights", "<= 0.2", None),
        ("hints", "changes", (1, 3.0)),
        ("never", "> 0", None),
        ("never", "changes", None),
    ],
)
def test_a_condition_holds_in_the_first_iteration_with_such_a_number(name, text, at):
    assert Condition.parse(name, text).find(ITERATIONS) == at


def test_a_number_that_stays_does_not_change():
    assert Condition.parse("weight", CHANGES).find([{"weight": [0.5]}, {}, {"weight": [0.5]}]) is None


@pytest.mark.parametrize("text", ["", "0", "> none", "= 1", "changed"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError, match=r"acts: hints: .* is no condition; write changes, or one of >=, <=, !=, >, <"):
        Condition.parse("hints", text)


def watched(rows, terms, unfinished=False):
    watch = Actions([], 3, 1.0)
    watch.rows, watch.terms, watch.unfinished, watch.iterations = rows, terms, unfinished, ITERATIONS
    return watch


def test_every_problem_of_a_run_is_told():
    conditions = [Condition.parse("hints", "> 5"), Condition.parse("asked", "> 0")]
    problems = find_problems(watched([8, 0], {"policy"}), conditions, {"policy", "kl"}, None)
    assert problems == [
        "`hints` is not > 5 (from 0 to 3; in 2 iterations)",
        "`asked` is not > 0 (never logged; in 2 iterations)",
        "the term kl has no gradient (in 2 iterations)",
        "no rows in 1 of 2 iterations, the first of them 1",
    ]
    assert find_problems(watched([8, 0], {"policy"}), [], {"policy"}, "the start is measured") == []
    [stopped] = find_problems(watched([8, 8], set(), unfinished=True), [], {"policy"}, None)
    assert stopped == "the term policy has no gradient (stopped after 2 iterations)"


def test_transforms_count_what_they_add_drop_or_change():
    class Drop:
        def __call__(self, episodes, ctx):
            return [episodes[0], Episode(episodes[1].prompt, 0, 1, reward=2.0)]

    episodes = [Episode(Prompt(f"task/train/{index}"), 0, index, reward=1.0) for index in range(3)]
    counts: Counter[str] = Counter()
    with count_changes(Drop, lambda name, count: counts.update({name: count})):
        Drop()(episodes, None)
    Drop()(episodes, None)  # no longer counted
    assert counts == {"Drop": 3}  # one is dropped, and one is gone with reward 1 and here with reward 2
    assert fingerprints(episodes) == fingerprints(list(reversed(episodes)))


def test_curricula_count_what_they_repeat_before_all_were_selected():
    class Repeat:
        def select(self, count, ctx):
            return [0, 1, 2][:count]

    counts: list[float] = []
    ctx, visited = SimpleNamespace(task=range(3)), Counter()
    with count_repeats(Repeat, visited, lambda name, count: counts.append(count)):
        for count in (2, 2, 3, 3):
            Repeat().select(count, ctx)
    assert counts == [0, 2, 2, 0]  # with the third call all were selected


def test_a_prompt_with_a_hint_is_another_than_the_tasks():
    plain = {"role": "user", "content": "1 + 1"}
    task = [Prompt("task/train/0", (plain,))]
    hinted = Prompt("task/train/0", ({**plain, "content": "1 + 1 | 2"},))
    episodes = [Episode(prompt, 0, 0) for prompt in (task[0], hinted, Prompt("task/train/7", (plain,)))]
    assert list(count_other_prompts(episodes, task)) == [False, True]  # the last one is no problem of the task


def test_a_commit_draws_some_recipes_and_another_commit_others():
    drawn = draw(RECIPES, 20, "a" * 40)
    assert len(set(drawn)) == 20 and drawn == draw(list(reversed(RECIPES)), 20, "a" * 40)
    assert set(drawn) != set(draw(RECIPES, 20, "b" * 40))


def test_the_records_are_kept_one_a_line(tmp_path):
    records = {"b": {"acts": {"hints": [1, 2.0]}}, "a": {"problems": []}}
    write_records(records, tmp_path)
    assert read_records(tmp_path) == records
    assert [line[2:5] for line in (tmp_path / "acts.json").read_text().splitlines()[1:-1]] == ['"a"', '"b"']


def test_every_header_has_conditions_that_name_metrics_or_parts_of_the_recipe():
    for recipe in RECIPES:
        for name, text in read_conditions(recipe).items():
            Condition.parse(name, text)
            if "/" not in name:
                plain = compose_words((f"recipe={recipe}",))
                assert f".{name}'" in str({root: plain[root] for root in ("model", "data")}), f"{recipe}: {name}"


def test_the_record_has_recipes_that_are_there_and_the_conditions_of_their_headers():
    for recipe, record in read_records().items():
        assert recipe in RECIPES
        if not record["problems"]:
            assert set(record["acts"]) == set(read_conditions(recipe)), recipe
            assert record["rows"] > 0 or read_header(recipe, "idle"), recipe


def test_what_does_not_act_is_found(tmp_path):
    """With problems of which all completions are rewarded alike no group is dropped for that; with others some are."""
    words = ("trainer.callbacks.warm_start.stages=null", *TINY, "trainer.max_epochs=2", "trainer.accelerator=cpu")
    mixed = run_recipe("grpo", tmp_path / "mixed", words=words)
    assert "DropZeroVariance" in mixed["acts"] and mixed["iterations"] == 2, mixed
    never = run_recipe("grpo", tmp_path / "never", words=(*words, "data.transforms.drop_zero_variance=null"))
    assert any("`DropZeroVariance` is not > 0 (never logged" in problem for problem in never["problems"]), never
    assert json.dumps(never) and CONF.exists()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_acts_at_its_own_defaults(recipe, tmp_path):
    record = run_recipe(recipe, tmp_path)
    assert not record["problems"], record
