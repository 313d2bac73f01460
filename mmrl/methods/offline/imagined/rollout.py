"""Imagined conversations: an engine that writes and judges dialogues, and the rollout that reads them as episodes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least, check_fraction
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.text_environment import environment_task
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.distributed import parallel
from mmrl.files.atomic import write_file
from mmrl.methods.offline.imagined.writers import DialogueCritic, DialogueWriter, read_dialogue
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstration

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImaginedDialogue:
    """A judged dialogue, a row of the file; `messages` and `rewards` are those that task=conversation_log reads."""

    messages: list[dict[str, str]]
    rewards: list[float]  # of the assistant's turns
    skill: str
    outcome: float
    consistency: float

    def decisions(self) -> list[tuple[list[dict[str, str]], str]]:
        """The messages before each of the assistant's turns, and the turn."""
        places = [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]
        return [(self.messages[:i], self.messages[i]["content"]) for i in places]


def pay_turns(turns: int, outcome: float, step_cost: float) -> list[float]:
    """Rewards of the agent's turns: -step_cost each, and the outcome at the last."""
    return [-step_cost] * (turns - 1) + [outcome - step_cost]


class ImaginedConversations(Rollout):
    """Read dialogues that were imagined before training, repeatedly in their order, as episodes with rewards.

    An agent of a drawn skill talks with the user of a drawn training problem; the dialogue is written, judged, and
    left out if its user contradicts the description. All are written before the first iteration into a file, which a
    resumed run reads.
    Source: arXiv:2311.05584, section 4.

    Args:
        writer: of dialogues.
        critic: of their outcome.
        path: file of the dialogues, JSON Lines; one that exists is read.
        skills: of the agents, in turn.
        count: dialogues that are asked for.
        step_cost: of a turn of the agent.
        consistency: share of the user's turns that must agree with its description.
        max_lost: share of the dialogues that may be unreadable, unjudged or inconsistent.
    """

    samples = False

    def __init__(
        self,
        writer: DialogueWriter,
        critic: DialogueCritic,
        path: str,
        skills: Sequence[str] = ("good", "fair", "poor"),
        count: int = 2000,
        step_cost: float = 0.05,
        consistency: float = 0.0,
        max_lost: float = 0.5,
    ):
        check_at_least(1, "rollout", count=count)
        check_at_least(0, "rollout", step_cost=step_cost)
        check_fraction("rollout", consistency=consistency, max_lost=max_lost)
        if not skills:
            raise ValueError("rollout.skills is empty; name at least one, as [good, poor]")
        self.writer, self.critic, self.path, self.skills = writer, critic, Path(path), tuple(skills)
        self.count, self.step_cost, self.consistency, self.max_lost = count, step_cost, consistency, max_lost
        self._dialogues: list[ImaginedDialogue] | None = None
        self._turns: dict[int, list[Turn]] = {}  # encoded, by the number of the dialogue

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"row_seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if self._dialogues is None:
            first = parallel.rank_and_size()[0] == 0
            self._dialogues = parallel.gather([self._read_or_imagine(ctx)] if first else [])[0]
        start = ctx.iteration * (ctx.num_prompts or len(prompts) * ctx.world_size)
        return [self._play((start + slot) % len(self._dialogues), slot, ctx) for slot, _ in prompts]

    def metrics(self) -> dict[str, float]:
        """Of the file: dialogues, success by skill, turns of the agent, and consistency."""
        rows = self._dialogues or []
        out = {"imagined/dialogues": float(len(rows))}
        if rows:
            out["imagined/turns"] = float(np.mean([len(row.rewards) for row in rows]))
            out["imagined/consistency"] = float(np.mean([row.consistency for row in rows]))
            out["imagined/success"] = float(np.mean([row.outcome for row in rows]))
        for skill in sorted({row.skill for row in rows}):
            out[f"imagined/success/{skill}"] = float(np.mean([row.outcome for row in rows if row.skill == skill]))
        return out

    def _play(self, number: int, slot: int, ctx: Context) -> Episode:
        """The episode of a dialogue, whose turns are encoded once."""
        assert self._dialogues is not None
        row = self._dialogues[number]
        if number not in self._turns:
            self._turns[number] = [
                Turn(self._encode(messages, text, ctx), reward)
                for (messages, text), reward in zip(row.decisions(), row.rewards, strict=True)
            ]
        turns = add_row_seeds(self._turns[number], slot, ctx)
        scores = {"return": sum(row.rewards), "turns": float(len(turns)), "exact": row.outcome}
        prompt = Prompt(f"imagined/{number}", tuple(row.decisions()[0][0]))
        return Episode(prompt, slot, 0, turns, ended="done", source="replay", info={"scores": scores})

    def _encode(self, messages: Sequence[Mapping[str, Any]], text: str, ctx: Context) -> Completion:
        """A turn of the agent as a completion that no weights of the run sampled."""
        completion = demonstration({"messages": tuple(messages), "images": ()}, text, ctx)
        return replace(completion, policy_version=-1)

    def _read_or_imagine(self, ctx: Context) -> list[ImaginedDialogue]:
        if self.path.is_file():
            return read_dialogues(self.path)
        dialogues = self._imagine(ctx)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.path, "".join(json.dumps(vars(row)) + "\n" for row in dialogues))
        log.info("%d imagined dialogues: %s", len(dialogues), self.path)
        return dialogues

    def _imagine(self, ctx: Context) -> list[ImaginedDialogue]:
        """Write and judge dialogues with users of drawn problems."""
        task: Any = environment_task(ctx.task, "rollout=imagined")
        rng = derive_rng("imagined problems", ctx.seed)
        prompts = [ctx.task[int(i)] for i in rng.integers(len(ctx.task), size=self.count)]
        skills = [self.skills[i % len(self.skills)] for i in range(self.count)]
        texts = self.writer.write(task, prompts, skills, derive_seed("imagined", ctx.seed) % 2**31)
        turns = [read_dialogue(text, task.max_turns) for text in texts]
        readable = [i for i, each in enumerate(turns) if each is not None]
        judged = self.critic.judge(task, [prompts[i] for i in readable], [turns[i] for i in readable])  # type: ignore[misc]
        opening = task.make_environment().reset(prompts[0]).text
        rows = []
        for i, judgement in zip(readable, judged, strict=True):
            if not isinstance(judgement, NoAnswer) and judgement[1] >= self.consistency:
                messages = build_messages(prompts[i], opening, turns[i])  # type: ignore[arg-type]
                count = sum(message["role"] == "assistant" for message in messages)
                rewards = pay_turns(count, judgement[0], self.step_cost)
                rows.append(ImaginedDialogue(messages, rewards, skills[i], *judgement))
        if self.count - len(rows) > self.max_lost * self.count:
            failed = sum(isinstance(judgement, NoAnswer) for judgement in judged)
            raise ConfigError(
                f"rollout=imagined: {len(rows)} of {self.count} dialogues can be used, fewer than rollout.max_lost="
                f"{self.max_lost:g} allows: {self.count - len(readable)} cannot be read, {failed} have no judgement, "
                f"and the others contradict rollout.consistency={self.consistency:g}; the last text began "
                f"{texts[-1][:120]!r}"
            )
        return rows


def build_messages(prompt: Prompt, opening: str, turns: Sequence[str]) -> list[dict[str, str]]:
    """The messages of a dialogue as a rollout of the environment shows them, to the agent's last turn.

    Args:
        prompt: its messages stand first.
        opening: the environment's first text.
        turns: the agent's first and then in turn.
    """
    messages: list[Mapping[str, Any]] = [*prompt.messages, {"role": "user", "content": opening}]
    roles = ("assistant", "user")
    messages += [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    if messages[-1]["role"] == "user":
        messages.pop()
    return [{"role": str(message["role"]), "content": str(message["content"])} for message in messages]


def read_dialogues(path: Path) -> list[ImaginedDialogue]:
    """Read a file of imagined dialogues.

    Raises:
        ConfigError: a line is none, or there is no line.
    """
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = ImaginedDialogue(**json.loads(line))
            turns = row.decisions()
            good = len(turns) == len(row.rewards) > 0 and all(isinstance(text, str) for _, text in turns)
        except (ValueError, TypeError, KeyError):
            good = False
        if not good:
            raise ConfigError(
                f"{path} line {number}: {line[:120]} is no imagined dialogue; remove the file, so that they are "
                "written again"
            )
        rows.append(row)
    if not rows:
        raise ConfigError(f"rollout.path={path} has no line; remove the file, so that dialogues are written")
    return rows
