"""Logged conversations with rewards, to learn from without playing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mmrl.core.errors import check_interval
from mmrl.core.types import Episode, Prompt, Task
from tasks.checks import check_index, check_split
from tasks.conversation_log.rows import LoggedConversation, read_log
from tasks.dataset.source import find_source
from tasks.generated import choose_split


@dataclass(frozen=True)
class ConversationLog(Task):
    """Log of conversations: every prompt is one, and its decisions are the assistant's turns.

    The score `return` is the sum of the rewards of an episode's turns. Conversations that begin alike are in one split.

    Args:
        path: a JSON Lines, JSON, parquet or Arrow file with the columns `messages` and `rewards` (or `reward`).
        held_out_fraction: share of the distinct beginnings that is held out.
        split: "train" or "held_out".
        seed: of the split; part of the task, not of the run.
    """

    path: str
    held_out_fraction: float = 0.0
    split: str = "train"
    seed: int = 0

    name, foreign = "conversation_log", True
    logged_rewards = True  # an episode that is played has none

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "[0, 1)", held_out_fraction=self.held_out_fraction)

    @cached_property
    def _conversations(self) -> list[LoggedConversation]:
        log = read_log(find_source(self.path, None, None, "task.path"))
        mine = [row for row in log if self._split_of(row) == self.split]
        if not mine:
            raise ValueError(
                f"task {self.name!r}: {self.path} has {len(log)} conversations and none in the split {self.split!r}; "
                "change task.held_out_fraction or task.seed"
            )
        return mine

    def _split_of(self, row: LoggedConversation) -> str:
        text = "\n".join(f"{message['role']}: {message['content']}" for message in row.start)
        return choose_split(self.name, self.seed, text, self.held_out_fraction)

    def __len__(self) -> int:
        return len(self._conversations)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        row = self._conversations[index]
        return Prompt(
            f"{self.name}/{self.split}/{index}", row.start, info={"turn_rewards": row.rewards}, place=row.place
        )

    def prompts_to_check(self) -> Iterator[Prompt]:
        """Each conversation up to the assistant's last turn, which is the answer."""
        for index, row in enumerate(self._conversations):
            last = row.turns[-1]
            yield replace(self[index], messages=row.messages[:last], answer=row.messages[last]["content"])

    def on(self, split: str) -> ConversationLog:
        return replace(self, split=split)

    def demonstrate(self, index: int) -> str:
        """The assistant's last turn."""
        check_index(self, index)
        row = self._conversations[index]
        return row.messages[row.turns[-1]]["content"]

    def demonstrations(self, prompts: Sequence[Prompt]) -> list[list[tuple[Mapping[str, Any], Any]]]:
        rows = [self._conversations[prompt.index] for prompt in prompts]
        return [[({"messages": row.messages[:i]}, row.messages[i]["content"]) for i in row.turns] for row in rows]

    def score(self, episode: Episode) -> dict[str, float]:
        return {"return": float(sum(turn.reward for turn in episode.turns))}
