"""`mmrl evaluate benchmark=NAME` measures all problems of a benchmark, in total and by part."""

import json
from pathlib import Path

import pytest
from hydra.utils import instantiate

import mmrl
from mmrl.commands.evaluate import evaluate
from mmrl.config.compose import compose
from mmrl.config.option_files import groups
from mmrl.core.errors import ConfigError
from tests.tasks.code.test_humaneval import ROWS
from tests.tasks.replies import reply

BFCL = Path(__file__).parents[1] / "tasks" / "bfcl" / "rows"
GSM8K = [{"question": f"What is {n} + 1?", "answer": f"It is one more.\n#### {n + 1}"} for n in range(4)]
MATH = [{"problem": f"What is {n} + 1?", "solution": f"It is $\\boxed{{{n + 1}}}$."} for n in range(4)]
PARTS = ["simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance"]


def write_rows(folder, name, rows):
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def words_of(name, folder):
    """Words that name the rows of a benchmark, the number of its problems and their parts."""
    if name == "bfcl":
        return [f"task.path='{BFCL}'"], 13, {*PARTS}
    if name == "bfcl_live":
        return [f"task.path='{BFCL}'", "task.parts=[live_relevance]"], 1, {"live_relevance"}
    if name == "humaneval":
        return [f"task.path='{write_rows(folder, name, ROWS)}'"], len(ROWS), {"humaneval"}
    rows = {"gsm8k": GSM8K, "math": MATH}[name]
    train, test = write_rows(folder, "train", rows[:1]), write_rows(folder, "test", rows[1:])
    return [f"task.path='{train}'", f"task.held_out_path='{test}'"], 3, {"dataset"}


@pytest.mark.parametrize("name", sorted(groups()["benchmark"]))
def test_every_problem_is_measured_in_total_and_by_part(name, tmp_path):
    words, count, parts = words_of(name, tmp_path)
    small = ["sampling.max_tokens=4", "policy=tiny_text", f"run_dir='{tmp_path / 'run'}'"]
    result = evaluate([f"benchmark={name}", *words, *small])
    assert result["count"] == count and list(result["decodes"]) == ["greedy"]
    assert result["metrics"]["policy"]["greedy"]["exact"]["n"] == count
    assert set(result["tasks"]["policy"].get("greedy", ())) == (parts if len(parts) > 1 else set())


@pytest.mark.parametrize("name", sorted(groups()["benchmark"]))
def test_a_policy_whose_setting_measures_some_problems_is_measured_on_all(name):
    assert compose(["policy=smollm2", "run_dir=run"]).data.evaluation.count < 1000
    composed = compose([f"benchmark={name}", "policy=smollm2", "task.path=rows", "run_dir=run"])
    assert composed.data.evaluation.count == 1_000_000


def test_right_answers_score_1(tmp_path):
    """Of the file's own demonstrations all are right, by the same words."""
    run = ["benchmark=bfcl", f"task.path='{BFCL}'", "policy=tiny_text", f"run_dir='{tmp_path / 'run'}'"]
    expert = "evaluation.rollout={_target_: mmrl.rollouts.text.scripted.Expert}"
    assert evaluate([*run, expert])["metrics"]["policy"]["greedy"]["exact"]["mean"] == 1


def test_nothing_is_left_to_train_on(tmp_path):
    words = ["benchmark=bfcl", f"task.path='{BFCL}'", "policy=tiny_text", f"run_dir='{tmp_path / 'run'}'"]
    with pytest.raises(ConfigError, match=r"mmrl evaluate benchmark=bfcl measures a policy.*task=bfcl"):
        mmrl.fit(*words)
    assert not (tmp_path / "run").exists()


REPLIES = {
    "humaneval": "Here is the function:\n```python\n{prompt}{answer}\n```\nIt does what you ask for.",
    "gsm8k": "{prompt} That makes {answer}.",
    "math": "We add, so that the answer is $\\boxed{{{answer}}}$.",
}


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_a_right_answer_as_chat_models_write_it_scores_1(name, tmp_path):
    words = [f"benchmark={name}", "policy=smollm2", "run_dir=run", *words_of(name, tmp_path)[0]]
    task = instantiate(compose(words).data.task, _convert_="all", split="held_out")
    for prompt in (task[index] for index in range(len(task))):
        question = prompt.messages[-1]["content"]
        text = REPLIES[name].format(prompt=question, answer=prompt.answer)
        assert task.score(reply(prompt, text))["exact"] == 1
        assert name != "math" or question.endswith("write the final answer in \\boxed{}.")
