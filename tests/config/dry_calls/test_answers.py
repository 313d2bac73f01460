"""Rows without answers are refused before a model is built, with the arguments that a run without answers needs."""

import json
from pathlib import Path

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from tests.test_recipes import SMALL

RATED = ("reward=rated.py:score",)
STAGES = "trainer.callbacks.warm_start.stages=null"
EVALUATOR = "evaluation.evaluators.exact=null"
ROWS = Path(__file__).parents[2] / "tasks" / "bfcl" / "rows"


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Build the parts of a run on prompts alone; no part is made where the run is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"{a}+3="}) + "\n" for a in range(30)))
    (tmp_path / "rated.py").write_text("def score(completion):\n    return -float(len(completion))\n")
    (tmp_path / "named.py").write_text("def score(completion):\n    return {'exact': float(completion == '4')}\n")
    data = ("task=dataset", "task.path=prompts.jsonl", "task.format=prompts", "trainer.accelerator=cpu")
    return lambda recipe, *words: CLI(to_lightning(compose([f"recipe={recipe}", *data, "run_dir=run", *words])))


@pytest.mark.parametrize(
    ("recipe", "words", "message"),
    [
        ("sft", (), "the row has no answer to imitate; set task.answer"),
        ("grpo", (), "no answer, so there is no score 'exact', which the reward pays; .* such as reward=judge"),
        (
            "grpo",
            RATED,
            "which the warm-start stage sft imitates and the evaluator exact compares with; set task.answer .*, or add "
            rf"{STAGES} {EVALUATOR}$",
        ),
        ("grpo", (*RATED, STAGES), f"no answer, which the evaluator exact compares with; .*, or add {EVALUATOR}$"),
        ("grpo", (*RATED, EVALUATOR), f"no answer, which the warm-start stage sft imitates; .*, or add {STAGES}$"),
        ("grpo", (*RATED, EVALUATOR, "policy.path=./empty"), "policy.path=.*empty"),  # a loaded policy has no stages
    ],
)
def test_a_run_that_needs_answers_is_refused_with_what_to_add(recipe, words, message, build):
    with pytest.raises(ConfigError, match=message) as error:
        build(recipe, *words)
    assert ("prompts.jsonl:1: the row has no answer" in str(error.value)) == ("empty" not in message)


@pytest.mark.parametrize("words", [(*RATED, STAGES, EVALUATOR), ("reward=named.py:score", STAGES)])
def test_a_run_that_needs_none_is_built(words, build):
    """The second reward gives the score of the evaluator itself."""
    cli = build("grpo", *words)
    assert len(cli.datamodule.task) > 10


def test_rows_with_answers_are_imitated_as_before(build, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(
        "".join(f'{{"prompt": "{a}+3=", "solution": {a + 3}}}\n' for a in range(30))
    )
    build("grpo", "task.format=trl")
    build("sft", "task.format=trl")


def test_a_stage_with_a_task_of_its_own_imitates_that(build):
    stages = "trainer.callbacks.warm_start.stages={sft: ['start=sums', 'task=sums']}"
    assert build("grpo", *RATED, EVALUATOR, stages).datamodule.task.name == "dataset"


WORLD = ("task=gridworld", "rollout=text_environment", "evaluation=text_environment", "trainer.accelerator=cpu")


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        (("recipe=grpo", *WORLD), "sft"),
        (("recipe=grpo", *WORLD, "task._target_=tests.text_environments.Count"), "sft"),
        (("recipe=grpo_digits_vlm", *WORLD, "task.form=both", "task.size=32"), "sft"),
    ],
)
def test_a_start_that_imitates_single_answers_is_none_for_an_environment(words, stage, tmp_path):
    with pytest.raises(ConfigError, match=f"warm-start stage {stage} imitates single answers, and task .*{STAGES}"):
        CLI(to_lightning(compose([*words, f"run_dir={tmp_path}"])))


@pytest.mark.parametrize("words", [("recipe=grpo", *WORLD, STAGES), ("method=grpo", "setting=gridworld")])
def test_an_environment_without_a_start_or_with_its_own_is_built(words, tmp_path):
    assert CLI(to_lightning(compose([*words, f"run_dir={tmp_path}"]))).datamodule.task.name == "gridworld"


def test_an_extractor_that_does_not_find_the_answers_of_the_task_is_refused():
    """The setting of SmolLM2 reads numbers, which function calls are not."""
    words = ["recipe=grpo_smollm2", "task=bfcl", f"data.task.path='{ROWS}'", "trainer.accelerator=cpu"]
    with pytest.raises(ConfigError, match=r"no completion could be right; correct task\.extract"):
        CLI(to_lightning(compose([*words, *SMALL["smollm2"]])))
    assert compose(["recipe=grpo_bfcl"]).data.task.extract is None
