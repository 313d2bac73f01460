"""The tasks that the laws run over: every option of conf/task whose verifier reads text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hydra.utils import instantiate

from mmrl.config.compose import compose, groups
from mmrl.core.types import Prompt, Task
from mmrl.evaluation.task_baselines import TaskBaselines
from mmrl.experiments.results import result_file
from tasks.browser.task import Browser
from tests.laws.text_answers import (
    change_blocks,
    change_call,
    change_expression,
    change_order,
    change_passage,
    change_query,
    change_ranking,
    change_sentence,
    change_solution,
    change_syllables,
    change_word,
    list_programs,
)
from tests.tasks.browser.installed import require_browser

OTHERS = {
    "offline": "logged episodes of a simulator",
    "transitions": "recorded transitions of a simulator",
    "block_mazes": "levels of a simulator",
    "sim": "initial states of a simulator",
    "levels": "initial states of a simulator",
    "sim_progress": "initial states of a simulator",
    "sim_similarity": "initial states of a simulator",
    "written_reward": "initial states of a simulator",
    "bfcl": "rows of a package",
    "humaneval": "rows of a file, whose programs are run",
    "object_reward": "initial states of a simulator",
    "gym_text": "environments without an expert",
    "textarena": "games without an expert",
    "openenv": "environments of a server",
    "conversation_log": "conversations of a file, whose rewards are recorded",
    "bandit": "one answer is right for all prompts",
    "cyclic": "preferences between answers; no answer is right",
    "drifted_preferences": "pairs of words; a policy's own answer has a reward, and none is right",
    "planted_preferences": "pairs of words; a policy's own answer has a reward, and none is right",
    "preferences": "pairs of answers; a policy's own answer has no score",
}
"""Options whose episodes a verifier of text does not score, and why."""

ENVIRONMENTS = {
    "babyai", "browser", "browser_clicks", "gridworld", "house", "negotiation", "text_maze",
    "twenty_questions", "wordle",
}  # fmt: skip
"""Options whose problems are episodes of text environments."""


def _rows() -> str:
    """A file of problems as a user has it."""
    path = Path(mkdtemp()) / "capitals.jsonl"
    capitals = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi", "Japan": "Tokyo", "Chile": "Santiago"}
    rows = [
        {"question": f"Capital of {land}? ({n})", "answer": town} for n in range(12) for land, town in capitals.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


WORDS: dict[str, list[str]] = {
    "reasoning_gym": ["task.dataset=chain_sum"],
    "browser": ["task.reload=false", "task.max_turns=3"],
}
"""Words that an option needs beside `task=NAME`."""

CHOICES = {"dataset", "reasoning_gym"}
"""Options whose problems the user chooses: no floor of theirs is stored."""

BROWSERS = ("browser", "browser_clicks")
"""Options that need Chromium and its driver too."""

PACKAGES = {
    "babyai": "minigrid",
    "reasoning_gym": "reasoning_gym",
    "chess": "chess",
    "drawings_svg": "resvg_py",
    **dict.fromkeys(BROWSERS, "miniwob"),
}
"""Packages without which an option is left out."""


def require_option(name: str) -> None:
    """Skip a test on a machine without what an option of conf/task needs."""
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    if name in BROWSERS:
        require_browser()


@cache
def build_task(name: str) -> Task:
    """The task of an option of conf/task, with its default arguments and the words above."""
    words = [f"task.path={_rows()}"] if name == "dataset" else WORDS.get(name, [])
    config: Any = compose([f"task={name}", *words])
    return instantiate(config.data.task, _convert_="all")


def drop_screenshots(task: Task) -> Task:
    """The task, pages without their screenshots: these take a third of the time, and no score depends on them."""
    return replace(task, screenshot=False, elements=True) if isinstance(task, Browser) else task


def read_floor(name: str) -> TaskBaselines:
    """The stored floor and ceiling of an option, which a law of tasks measures again."""
    return TaskBaselines(**json.loads(result_file("task", name).read_text()))


def names() -> list[str]:
    """Options of conf/task that the laws run over."""
    return sorted(set(groups()["task"]) - set(OTHERS) - ENVIRONMENTS)


ALLOWED: dict[str, set[str]] = {
    "dataset": {"full-width look-alikes"},  # equality of text ignores case and width
    "reasoning_gym": {"full-width look-alikes"},  # its scorers call int(), which reads them
    "wiki": {"in a comment"},  # SQuAD's equality ignores punctuation
}
"""By option, the kinds of changed right answers that its verifier accepts on purpose."""

HOSTILE: dict[str, Callable[[Prompt, str], dict[str, str]]] = {
    "calls": change_call,
    "ciphers": change_sentence,
    "code": list_programs,
    "countdown": change_expression,
    "edits": change_blocks,
    "grammar": change_syllables,
    "graph_steps": change_order,
    "graphs": change_solution,
    "passages": change_passage,
    "ranking": change_ranking,
    "sql": change_query,
    "strings": change_word,
}
"""By option, further hostile answers of one problem, by kind: a function of the prompt and the expert's answer."""

_BOX = "boxes and points have a tolerance"
NEAR: dict[str, str] = {
    **dict.fromkeys(("clicks", "jigsaw_box", "scenes_detection", "scenes_grounding", "scenes_pointing"), _BOX),
    **dict.fromkeys(("small_clicks", "small_detection", "small_grounding", "solids_grounding"), _BOX),
    **dict.fromkeys(("calls", "call_trajectories"), "JSON with other blanks is equal"),
    "clips_count": "zeros before a number are read",
    "drawings": "what another shape covers is free",
    "drawings_svg": "blanks are free",
    "evaluations": "the reasons before a verdict are free",
    "graphs": "the last step counts by its value, its operands in the score `process`",
    "ledgers": "blanks, and full stops at the end, are free",
    "programs": "several programs and inputs are right: tests/tasks/code/test_programs.py has an oracle",
    "records": "a risk is right on its side of 1/2",
    "sql": "blanks are free: tests/tasks/code/test_sql.py has an oracle",
    "wiki": "SQuAD's equality ignores punctuation",
}
"""Options whose verifier accepts more than 1 % of the answers that differ in one place, and why that is right:
`tests.laws.equal_answers` decides for each accepted one."""
