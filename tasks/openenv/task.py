"""Environments of OpenEnv, in text."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.text_environment import TextEnvironment
from tasks.environment import TextEnvironmentTask
from tasks.openenv.environment import OpenEnvEnvironment, read_object, write_object
from tasks.openenv.server import Description, OpenEnvServer, describe

JSON = "json"


@dataclass(frozen=True)
class Problem:
    """The seed that an episode is reset with."""

    seed: int


@dataclass(frozen=True, kw_only=True)
class OpenEnv(TextEnvironmentTask):
    """An environment of the package openenv (0.10), unchanged: its server is asked over its own protocol.

    Source: OpenEnv 0.10, `openenv.core.env_server`: pages `/schema` and `/metadata`, sessions at `/ws`.

    Args:
        url: of a running server.
        server: in place of `url`, MODULE:APP of the environment's application, which a process of `python` serves.
        python: interpreter that has the package openenv, for `server`.
        action: field of an action that is the policy's text; "json" where the text is a JSON object of all fields. None
            is the only required field, and "json" where there are several.
        observation: field that the policy reads; "json" for all of them. None is the only text among the fields, and
            "json" where there are several or none.
        success_field: field of the observation that says whether the episode is solved, in place of a positive reward
            at its end.
        instruction: text before every observation; None for the server's description and the form of an action.
        options: further arguments of a reset.
        repeatable: refuse an environment whose first observations of one seed differ.
        max_chars: of an observation; longer ones are cut, and say so.
        timeout_s: seconds that an answer of the server may take.
    """

    name = "openenv"
    packages = ("websockets",)
    url: str | None = None
    server: str | None = None
    python: str = "python"
    action: str | None = None
    observation: str | None = None
    success_field: str | None = None
    instruction: str | None = None
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    repeatable: bool = True
    max_chars: int = 8000
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("task openenv:", timeout_s=self.timeout_s)
        check_at_least(1, "task openenv:", max_chars=self.max_chars)
        if (self.url is None) == (self.server is None):
            raise ValueError(
                "task openenv: give one of task.url=http://HOST:PORT, of a running server, and task.server=MODULE:APP "
                "with task.python=PYTHON, which starts one"
            )
        fields = self.description.actions
        if self.action_field != JSON and self.action_field not in fields:
            raise ValueError(f"task openenv: action={self.action!r} is no field of an action, which has {[*fields]}")

    @cached_property
    def description(self) -> Description:
        """What the server says of its environment."""
        return describe(self.find_url(), self.timeout_s)

    @cached_property
    def action_field(self) -> str:
        """Field of an action that is the policy's text, or "json"."""
        required = self.description.required or tuple(self.description.actions)
        return self.action or (required[0] if len(required) == 1 else JSON)

    @cached_property
    def admissible_actions(self) -> tuple[str, ...]:
        """The values of a field that is one of several words; none where any text can be an action."""
        choices = self.description.actions.get(self.action_field, {}).get("enum", ())
        return tuple(choices) if all(isinstance(choice, str) for choice in choices) else ()

    @cached_property
    def first_texts(self) -> dict[int, str]:
        """The first observation of each seed that was played."""
        return {}

    def find_url(self) -> str:
        """Return the address of the server, which is started if there is none."""
        return (self.url or OpenEnvServer.find(str(self.server), self.python).url).rstrip("/")

    def draw(self, rng: np.random.Generator) -> Problem:
        return Problem(int(rng.integers(2**31)))

    def split_key(self, problem: Problem) -> str:
        return str(problem.seed)

    def explain(self, problem: Problem) -> str:
        if self.instruction is not None:
            return self.instruction
        fields = self.description.actions
        kinds = {name: f"{name} ({schema.get('type', 'any')})" for name, schema in fields.items()}
        form = (
            f"{', '.join(kinds.values())} as a JSON object" if self.action_field == JSON else kinds[self.action_field]
        )
        return f"{self.description.description}\nAn action is {form}.".strip()

    def make_environment(self) -> TextEnvironment:
        return OpenEnvEnvironment(self)

    def read_action(self, text: str) -> dict[str, Any]:
        """Return the fields of the action that a text is.

        Raises:
            BrokenJSON: the text is no JSON object where it has to be one.
        """
        return read_object(text) if self.action_field == JSON else {self.action_field: text.strip()}

    def write_observation(self, observation: dict[str, Any]) -> str:
        """Return what the policy reads of an observation.

        Raises:
            RuntimeError: it does not have the field.
        """
        texts = self.description.texts
        name = self.observation or (texts[0] if len(texts) == 1 else JSON)
        shown = {key: value for key, value in observation.items() if key != "metadata"}
        if name != JSON and name not in observation:
            raise RuntimeError(f"task.observation={name!r} is not in the observation, which has {[*observation]}")
        value = shown if name == JSON else observation[name]
        text = value if isinstance(value, str) else write_object(value)
        return text if len(text) <= self.max_chars else f"{text[: self.max_chars]} [cut at {self.max_chars} characters]"
