"""Imagined conversations: who writes the dialogues and who judges them.

Zero-Shot Goal-Directed Dialogue via RL on Imagined Conversations, 2023, arXiv:2311.05584, section 4.

- dialogues of a described user and an agent of a given skill: `DialogueWriter`, `ModelDialogues`
- their outcome, and how far the user's turns agree with its description: `DialogueCritic`, `ModelCritic`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.messages import join_contents
from mmrl.core.types import Prompt
from mmrl.rewards.judges.base import LanguageJudge
from mmrl.rewards.judges.questions import Question, Reply, Sheet, read_number
from mmrl.tools.programs.writers import ChatWriter

Judgement = tuple[float, float]
"""Outcome of a dialogue, 1 or 0, and the share of the user's turns that agree with its description."""
_LINE = re.compile(r"[\s*_>#-]*(agent|user)[*_]*\s*:[*_]*\s*(.*?)\s*$", re.IGNORECASE)
DESCRIPTIONS = {
    "good": "very skilled: it asks what tells most, remembers the answers and succeeds in few turns",
    "fair": "of middling skill: some of its turns help, others do not",
    "poor": "unskilled: it asks what does not help, forgets the answers and often fails",
}


@runtime_checkable
class DialogueWriter(Protocol):
    """Writes dialogues."""

    def write(self, task: Any, prompts: Sequence[Prompt], skills: Sequence[str], seed: int) -> list[str]:
        """Write a dialogue of each prompt as lines "Agent: ..." and "User: ...", beginning with the agent.

        Args:
            task: of text environments; `describe_user(prompt)` is the user's hidden state in words.
            prompts: problems, whose messages explain the task.
            skills: of the agents.
            seed: of the first dialogue; the next ones have the numbers after it.
        """


@runtime_checkable
class DialogueCritic(Protocol):
    """Judges dialogues."""

    def judge(self, task: Any, prompts: Sequence[Prompt], dialogues: Sequence[Sequence[str]]) -> list[Any]:
        """A `Judgement` of each dialogue, or a NoAnswer.

        Args:
            task: of text environments.
            prompts: problems.
            dialogues: turns, the agent's first and then in turn.
        """


def read_dialogue(text: str, max_turns: int) -> list[str] | None:
    """Turns of a dialogue, the agent's first and then in turn, to the agent's last one or a reply to it.

    Lines that are neither's are left out, as what a model says before and after.

    Args:
        text: lines "Agent: ..." and "User: ...".
        max_turns: of the agent; later ones are left out.

    Returns:
        None where the agent has no turn, one is empty, or two of one speaker follow each other.
    """
    turns = list[str]()
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            speaker, content = match[1].lower(), match[2]
            if speaker != ("agent", "user")[len(turns) % 2] or not content:
                return None
            turns.append(content)
    return turns[: 2 * max_turns] or None


def describe_user(task: Any, prompt: Prompt) -> str:
    """The user's hidden state in words.

    Raises:
        ConfigError: the task does not say it.
    """
    if not hasattr(task, "describe_user"):
        raise ConfigError(
            f"rollout=imagined: task {task.name!r} describes no user (describe_user); take setting=wishes, or give "
            "your task that method"
        )
    return task.describe_user(prompt)


class ModelDialogues(ChatWriter):
    """A language model behind OpenAI's interface writes the dialogues; `mmrl serve` puts any text policy there.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        descriptions: by skill, how the agent is described to the model.
        temperature: of the model's sampling.
        requests: under way at the same time.
        connection: further options of `ChatWriter`.
    """

    place = "rollout.writer"

    def __init__(
        self,
        url: str,
        model: str,
        descriptions: Mapping[str, str] | None = None,
        temperature: float = 1.0,
        requests: int = 16,
        **connection: Any,
    ):
        check_at_least(1, self.place, requests=requests)
        super().__init__(url, model, temperature, **connection)
        self.descriptions, self.requests = dict(descriptions or DESCRIPTIONS), requests

    def write(  # type: ignore[override]
        self, task: Any, prompts: Sequence[Prompt], skills: Sequence[str], seed: int
    ) -> list[str]:
        if unknown := sorted(set(skills) - set(self.descriptions)):
            raise ConfigError(
                f"rollout.skills has {unknown[0]!r}, and rollout.writer.descriptions has {sorted(self.descriptions)}; "
                "name skills of these"
            )
        requests = [self._ask(task, prompt, skill) for prompt, skill in zip(prompts, skills, strict=True)]
        with ThreadPoolExecutor(self.requests) as pool:
            return list(pool.map(super().write, requests, range(seed, seed + len(requests))))

    def _ask(self, task: Any, prompt: Prompt, skill: str) -> list[dict[str, str]]:
        content = (
            "Write a dialogue between an agent and a user. The agent's instructions:\n"
            f"{join_contents(prompt.messages)}\nIt has at most {task.max_turns} turns. {describe_user(task, prompt)} "
            f"The agent does not know this. The agent is {self.descriptions[skill]}. Write one line a turn, beginning "
            'with "Agent: " and "User: ", the agent\'s first, and nothing else.'
        )
        return [{"role": "user", "content": content}]


class ModelCritic:
    """A language model judges the dialogues.

    Args:
        judge: `mmrl.rewards.judges.server.ServerJudge`, or `mmrl.rewards.judges.model.ModelJudge` for a local model.
    """

    def __init__(self, judge: LanguageJudge):
        if judge.of_run:
            raise ValueError(
                f"rollout.critic.judge={type(judge).__name__} is a model of the run, and dialogues are judged before "
                "it; take mmrl.rewards.judges.server.ServerJudge or mmrl.rewards.judges.model.ModelJudge"
            )
        self._judge = judge

    def judge(self, task: Any, prompts: Sequence[Prompt], dialogues: Sequence[Sequence[str]]) -> list[Any]:
        return self._judge.judge([self._ask(task, *pair) for pair in zip(prompts, dialogues, strict=True)])

    @staticmethod
    def _ask(task: Any, prompt: Prompt, turns: Sequence[str]) -> Question:
        lines = [f"{('Agent', 'User')[number % 2]}: {turn}" for number, turn in enumerate(turns)]
        texts = {"task": join_contents(prompt.messages), "user": describe_user(task, prompt)}
        sheet = Sheet({**texts, "dialogue": "\n".join(lines)})
        question = (
            "An agent was given a task, and a user was described; below is their dialogue. Did the agent reach the "
            "goal of this user by its last turn? Which share of the user's turns agrees with the description?"
        )
        verdict = (
            "End with two lines that read\nsuccess-MARK: N\nconsistency-MARK: S\nwhere N is 1 or 0 and S is a number "
            "from 0 to 1."
        )
        return Question(sheet.format(question, verdict), lambda reply: _read_judgement(sheet, reply))


def _read_judgement(sheet: Sheet, reply: Reply) -> Judgement:
    values = sheet.read(reply)
    success = read_number(values, "success", 0, 1)
    return float(success >= 0.5), read_number(values, "consistency", 0, 1)
