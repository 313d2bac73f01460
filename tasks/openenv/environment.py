"""One OpenEnv environment as an environment in text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mmrl.core.text_environment import TextEnvironment, TextStep
from mmrl.core.types import Prompt
from mmrl.files.strict_json import BrokenJSON, need_object, parse_json
from tasks.openenv.session import InvalidActionError, Session

if TYPE_CHECKING:
    from tasks.openenv.task import OpenEnv


class OpenEnvEnvironment(TextEnvironment):
    """An environment of a server; its session ends with the episode, and is kept where the episode is cut.

    Rewards are those of the server. Scores: exact, which is the observation's field `success_field`, and without one
    whether the episode ended with a positive reward.
    """

    def __init__(self, task: OpenEnv):
        self.task = task
        self.session: Session | None = None
        self.turns = 0

    def start(self, prompt: Prompt, seed: int) -> TextStep:
        self.turns = 0
        if self.session is None:
            self.session = Session(self.task.find_url(), self.task.timeout_s)
        seed = prompt.info["problem"].seed
        step = self._read(self._ask("reset", {**self.task.options, "seed": seed}))
        if self.task.repeatable and self.task.first_texts.setdefault(seed, step.text) != step.text:
            raise RuntimeError(
                f"the OpenEnv environment gave two first observations for seed {seed}, so the episodes of a prompt do "
                "not start alike; let its reset take the seed, or allow it by task.repeatable=false"
            )
        return step

    def apply(self, action: str) -> TextStep:
        self.turns += 1
        try:
            result = self._ask("step", self.task.read_action(action))
        except (InvalidActionError, BrokenJSON) as error:
            step = self._refuse(str(error))
        else:
            step = self._read(result)
        if step.done or self.turns >= self.task.max_turns:
            self.close()
        return step

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None

    def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        if self.session is None:
            raise RuntimeError("the session of this OpenEnv episode is over")
        try:
            return self.session.ask(kind, data)
        except RuntimeError:
            self.session = None
            raise

    def _refuse(self, reason: str) -> TextStep:
        """Answer an action that the environment did not take: nothing has changed."""
        return TextStep(
            f"\nThe action was not taken: {reason}\n>",
            valid=False,
            scores=self.last.scores,
            admissible_actions=self.last.admissible_actions,
        )

    def _read(self, result: dict[str, Any]) -> TextStep:
        """Read an observation of the server."""
        observation, done = result.get("observation") or {}, bool(result.get("done"))
        reward, success = result.get("reward"), self.task.success_field
        if success is not None and success not in observation:
            raise RuntimeError(f"task.success_field={success!r} is not in the observation, which has {[*observation]}")
        if done and reward is None and success is None:
            raise RuntimeError(
                "the OpenEnv episode ended without a reward; name the field of its observation that says whether it "
                "was solved by task.success_field"
            )
        solved = done and (reward or 0) > 0 if success is None else bool(observation[success])
        text = f"\n{self.task.write_observation(observation).strip()}\n>"
        self.last = TextStep(
            text,
            reward=float(reward or 0.0),
            terminated=done,
            scores={"exact": float(solved)},
            admissible_actions=self.task.admissible_actions,
        )
        return self.last


def read_object(text: str) -> dict[str, Any]:
    """Read an action that is a JSON object.

    Raises:
        BrokenJSON: it is none.
    """
    return need_object(parse_json(text, "the action", "write a JSON object"), "the action", "write a JSON object")


def write_object(value: Any) -> str:
    """Write an observation of several fields."""
    return json.dumps(value, ensure_ascii=False)
