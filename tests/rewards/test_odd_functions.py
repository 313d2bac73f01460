"""Reward functions of others are called once before a model is built: they work, or one line says what is wrong."""

import re
from typing import Any

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.data import check_data
from mmrl.core.errors import ConfigError
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.function import FunctionReward
from tests.tiny_recipes import QUIET, TEXT, override

HERE = "tests.rewards.odd_functions"
WORKS = (
    *("works", "gives_bool", "gives_decimal", "gives_fraction", "gives_array", "gives_tensor", "gives_tensors"),
    *("gives_dict", "gives_dict_of_lists", "is_async", "takes_all", "with_default", "prints", "changes_arguments"),
    *("a_lambda", "a_partial", "decorated", "Judge", "Scorer.score", "Scorer.fixed", "cached"),
)
REFUSED = {
    "gives_none": "returned None, which is not a finite number",
    "gives_text": r"returned '0\.5' \(str\), which is not a finite number",
    "gives_nan": "returned nan, which is not a finite number",
    "gives_infinity": "returned inf, which is not a finite number",
    "gives_complex": r"returned 1j \(complex\), which is not",
    "gives_vector": r"returned array\(\[1., 1.\]\) \(ndarray\), which is not",
    "gives_list": r"returned \[1\.0\] \(list\), which is not",
    "gives_tuple": r"returned \(1\.0, 'reason'\) \(tuple\), which is not",
    "gives_short_list": "returned a list of 1 values for 2 completions",
    "gives_number_for_all": r"returned 1\.0; a function of `completions` returns a list of one number for each",
    "gives_generator": "returned <generator .* returns a list of one number for each",
    "yields": r"returned <generator object yields .*\(generator\), which is not",
    "yields_async": r"returned <async_generator object .*\(async_generator\), which is not",
    "gives_coroutine": "returned what has to be awaited; declare it, or what decorates it, with async def",
    "gives_empty_dict": "returned an empty dict; give a number for each name",
    "gives_dict_of_texts": r"returned 'good' \(str\) as 'a', which is not",
    "gives_keys_of_numbers": "returned a dict with the key 1; the names of scores are text",
    "gives_other_names": r"returned the scores \['empty'\] after \['0'\]",
    "raises_on_empty": "raised IndexError: string index out of range .*it was given the completion ''",
    "divides": "raised ZeroDivisionError: .*it was given the completion ''",
    "exits": r"raised SystemExit: 3 \(odd_functions.py, line \d+: sys.exit\(3\)\)",
    "interrupts_itself": "raised RuntimeError: CUDA out of memory",
    "unnamed": "unnamed has a parameter 'a', and 'counting/train/0' has no such column; there are",
    "old_trl": "old_trl has a parameter 'ground_truth', and 'counting/train/0' has no such column",
    "exact": "data.reward gives a score 'exact', and so does task 'counting'",
    "recurses": "raised RecursionError: maximum recursion depth",
    "asserts": "raised AssertionError: no thought",
    "imports_missing": "raised ModuleNotFoundError: No module named 'package_that_is_not_there'",
}
UNREADABLE = {
    "positional": "takes 'completion' by position only; remove the /",
    "both": "takes `completion`, which is one, and completions",
    "Needs": r"Needs\(\) raised TypeError: .*its constructor must work without arguments",
    "NUMBER": "NUMBER is int, not a function",
    "scorer": "has no 'scorer'",
}
ENDED = {"hangs": "took longer than 0.5 s and was killed", "ends_process": "ended its process: .*exit status 4"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    words = override(TEXT, [*QUIET, f"run_dir={tmp_path_factory.mktemp('run')}", "data.reward.weights={exact: 1.0}"])
    return CLI(to_lightning(compose(words)), build=True).datamodule


def reward(name: str, **options) -> FunctionReward:
    return FunctionReward([f"{HERE}:{name}"], **options)


def test_the_tables_have_thirty_functions():
    assert len(WORKS) + len(REFUSED) + len(UNREADABLE) + len(ENDED) >= 50


@pytest.mark.parametrize("name", WORKS)
def test_it_works(name, data):
    check_data(data, reward(name, in_process=True))
    assert data.task[0].messages  # nothing that a function changed


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name, data):
    with pytest.raises(ConfigError, match=REFUSED[name]) as error:
        check_data(data, reward(name, in_process=True))
    text = str(error.value)
    assert "\n" not in text and name.split(".")[-1] in text and len(text) < 600


@pytest.mark.parametrize("name", UNREADABLE)
def test_it_is_refused_when_it_is_loaded(name):
    with pytest.raises(ValueError, match=UNREADABLE[name]):
        reward(name, in_process=True)


@pytest.mark.parametrize("name", ENDED)
def test_a_call_that_ends_its_process_or_does_not_end_is_refused(name, data):
    with pytest.raises(ConfigError, match=ENDED[name]):
        check_data(data, reward(name, timeout_s=0.5))


def test_a_slow_function_and_one_that_fails_now_and_then_work(data):
    check_data(data, reward("slow", timeout_s=5))
    check_data(data, reward("raises_on_empty", max_failures=1))
    with pytest.raises(ConfigError, match=r"CUDA out of memory.*failed for every completion"):
        check_data(data, reward("interrupts_itself", max_failures=4))


def test_a_weight_of_a_score_that_nobody_gives_is_refused(data):
    with pytest.raises(ConfigError, match="names 'nope', but 'counting/train/0' was scored with"):
        check_data(data, reward("works", in_process=True, weights={"nope": 1.0}))


class Unbuilt(TextPolicy):
    """A policy that must not be built."""

    def __init__(self, path: str | None = None, config: dict[str, Any] | None = None, tokenizer: str | None = None):
        raise AssertionError("a model is built")


FILE = """
import sys
{top}
def score(completion):
    print("score was called")
    return {value}
"""


@pytest.mark.parametrize(
    ("top", "value", "message"),
    [
        ("1 / 0", "1", r"importing .*rewards\.py raised ZeroDivisionError: division by zero"),
        ("sys.exit(1)", "1", r"importing .*rewards\.py raised SystemExit"),
        ("import nothing_like_it", "1", r"importing .*rewards\.py raised ModuleNotFoundError"),
        ("def (:", "1", r"importing .*rewards\.py raised SyntaxError"),
        ("", "None", r"rewards\.py: score returned None"),
    ],
)
def test_no_model_is_built_for_a_file_that_is_refused(top, value, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(FILE.format(top=top, value=value))
    words = [word for word in TEXT if "reward" not in word]
    words.append(f"model.policy._target_={__name__}.Unbuilt")
    with pytest.raises(ConfigError, match=message) as error:
        CLI(to_lightning(compose([*words, *QUIET, "run_dir=run", "reward=rewards.py:score"])))
    assert "a model is built" not in str(error.value) and not re.search("jsonargparse|Traceback", str(error.value))
