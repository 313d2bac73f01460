"""The answer of a row of others is right by the task's own score, or the row is refused before a model is built."""

import copy
import json
import logging
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.data import check_data
from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Prompt, Task
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.function import FunctionReward
from tasks.dataset import DatasetTask
from tests.tiny_recipes import QUIET, TEXT

GSM = "She has 3.\n#### 7"
TALK = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "4", "reasoning_content": "2+2"}]
# name: answer, options, what the refusal says; None where the row is right
ROWS: dict[str, tuple[Any, dict[str, Any], str | None]] = {
    "text": ("Paris", {}, None),
    "number": (7, {}, None),
    "float": (1 / 7, {}, None),
    "number with a separator": ("3,141", {"extract": "last_number"}, None),
    "wide digits": ("７", {"extract": "last_number"}, None),
    "percent": ("50%", {"extract": "last_number"}, None),
    "word as a number": ("Paris", {"extract": "last_number"}, "'Paris' has the scores"),
    "date as a number": ("2024-01-02", {"extract": "last_number"}, "'2024-01-02' has the scores"),
    "unit": ("12 km", {"extract": "last_number"}, "'12 km' has the scores"),
    "GSM8K": (GSM, {"extract": "last_number", "answer_extract": "marker"}, None),
    "GSM8K without its marker": (GSM, {"extract": "last_number"}, r"#### 7' has the scores .*correct task\.extract"),
    "boxed": (r"\frac{1}{2}", {"extract": "boxed", "equality": "math"}, None),
    "open brace in a box": (r"\frac{1", {"extract": "boxed"}, "has the scores"),
    "option": ("B", {"extract": "choice"}, None),
    "words as an option": ("the second", {"extract": "choice"}, "'the second' has the scores"),
    "JSON": ('{"a": 1}', {"extract": "json"}, None),
    "words as JSON": ("a: 1", {"extract": "json"}, None),
    "code": ("print(1)", {"extract": "code"}, None),
    "tags": ("4", {"extract": "tags"}, None),
    "thought and answer": ("<think>2+2</think>4", {}, "has the scores"),
    "two lines": ("a\n\nb\n", {}, None),
    "answer of a sentence": ("Paris", {"extract": "answer"}, None),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return CLI(to_lightning(compose([*TEXT, *QUIET, f"run_dir={tmp_path_factory.mktemp('run')}"]))).datamodule


def check(data: Any, task: Task, reward: Any = None) -> None:
    module = copy.copy(data)
    module.task = task
    check_data(module, reward or WeightedSum({"exact": 1.0}))


def write(folder: Any, rows: list[dict[str, Any]]) -> str:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_right_by_its_own_answer_or_refused(name, data, tmp_path):
    answer, options, message = ROWS[name]
    path = write(tmp_path, [{"question": f"{i}?", "answer": answer} for i in range(20)])
    task = DatasetTask(path, **options)
    if message is None:
        return check(data, task)
    with pytest.raises(ConfigError, match=rf"rows\.jsonl:\d+: the row's own answer .*{message}"):
        check(data, task)


def test_rows_without_a_right_answer_are_not_tried(data, tmp_path):
    check(data, DatasetTask(write(tmp_path, [{"prompt": f"{i}?"} for i in range(20)]), format="prompts"))
    talks = [{"messages": [{**TALK[0], "content": str(i)}, TALK[1]]} for i in range(20)]
    check(data, DatasetTask(write(tmp_path, talks), format="conversations"))


def test_a_score_that_is_not_paid_is_said_and_not_refused(data, tmp_path, caplog):
    task = DatasetTask(
        write(tmp_path, [{"question": f"{i}?", "answer": "x"} for i in range(20)]), extract="last_number"
    )
    with caplog.at_level(logging.WARNING):
        check(data, task, FunctionReward(["tests.rewards.odd_functions:a_lambda"], in_process=True))
    assert "the row's own answer 'x' has the scores" in caplog.text


@dataclass(frozen=True)
class Mine(Task):
    """A task of a user, with one fault."""

    fault: str = ""
    split: str = "train"
    name = "mine"

    def __len__(self) -> int:
        return 0 if self.fault == "empty" else 3

    def __getitem__(self, index: int) -> Prompt:
        if self.fault == "getitem":
            raise KeyError("question")
        return Prompt(f"mine/{self.split}/{index}", ({"role": "user", "content": "2+2="},), answer="4")

    def on(self, split: str) -> Task:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        if self.fault == "score":
            return {"exact": float(int(episode.output) == 4)}
        if self.fault == "nan":
            return {"exact": float("nan")}
        return {"exact": float(episode.output == ("5" if self.fault == "never" else "4"))}

    def demonstrate(self, index: int) -> str:
        return "four" if self.fault == "expert" else "4"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("", None),
        ("empty", None),
        ("getitem", r"data\.task \(Mine\): its first problem raised KeyError: 'question'"),
        ("score", r"data\.task \(Mine\): score of the completion '' raised ValueError: invalid literal for int"),
        ("nan", "task 'mine' scored 'mine/train/0' exact=nan, which is no finite number"),
        ("never", r"mine/train/0: the row's own answer '4' has the scores \{'exact': 0.0\}"),
        ("expert", r"mine/train/0: the row's own answer 'four' has the scores"),
    ],
)
def test_a_task_of_a_user_is_tried_or_refused(fault, message, data):
    if message is None:
        return check(data, Mine(fault))
    with pytest.raises(ConfigError, match=message):
        check(data, Mine(fault))
