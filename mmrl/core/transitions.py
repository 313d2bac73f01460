"""Transitions of vector environments as columns: action batches, a transition table, and views of it.

Everything here can also be read row by row, as the `Completion`s and `Turn`s of other rollouts; those are built on
demand. `mmrl.data.collate` reads the columns directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mmrl.core.types import Completion, Turn

_OWN = frozenset({"action", "behavior_logprobs", "action_mask", "values", "policy_version", "reward"})


@dataclass(frozen=True)
class ActionBatch(Sequence[Completion]):
    """Sampled actions of a policy in n contexts, as columns.

    Columns are named as in `mmrl.core.columns`, the policy's inputs "obs.<name>"; all have n rows. `deferred` computes
    those that do not affect the action, such as values, from the others: once for all rows, or when they are read.
    """

    columns: dict[
        str, Tensor
    ]  # [n, ...], on the CPU: action, behavior_logprobs, action_mask, obs.* and what is drawn with them
    output: Sequence[Any]  # n decoded actions
    deferred: Callable[
        [dict[str, Tensor]], dict[str, Tensor]
    ]  # temperature, policy_version, values where there are any

    def __len__(self) -> int:
        return len(self.output)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return ActionBatch(
                {name: column[row] for name, column in self.columns.items()}, self.output[row], self.deferred
            )
        return completion(self.all_columns, row, self.output[row])

    @cached_property
    def all_columns(self) -> dict[str, Tensor]:
        """All columns."""
        return self.columns | self.deferred(self.columns)

    @staticmethod
    def concatenate(parts: Sequence[ActionBatch]) -> ActionBatch:
        """Concatenate several batches of one policy."""
        if len(parts) == 1:
            return parts[0]
        columns = {name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns}
        return ActionBatch(columns, [output for part in parts for output in part.output], parts[0].deferred)


def completion(columns: dict[str, Tensor], row: int, output: Any) -> Completion:
    """Return one row as a completion."""
    return Completion(
        observation={name[4:]: column[row] for name, column in columns.items() if name.startswith("obs.")},
        action=columns["action"][row],
        behavior_logprobs=columns["behavior_logprobs"][row],
        action_mask=columns["action_mask"][row],
        output=output,
        value=columns["values"][row] if "values" in columns else None,
        extra={name: c[row] for name, c in columns.items() if name not in _OWN and not name.startswith("obs.")},
        policy_version=int(columns["policy_version"][row]),
    )


class TransitionTable:
    """Collects the actions of an engine and their rewards; episodes are views of it when it is complete."""

    def __init__(self) -> None:
        self.rows = 0
        self._batches: list[Sequence[Completion]] = []
        self._rewards: list[float] = []

    def add(self, actions: Sequence[Completion], rewards: Sequence[float]) -> range:
        """Append rows for these decisions; return their row numbers."""
        if len(actions) != len(rewards):
            raise ValueError(f"{len(actions)} decisions and {len(rewards)} rewards; give one reward per decision")
        if len(actions):
            self._batches.append(actions)
        self._rewards.extend(rewards)
        self.rows += len(actions)
        return range(self.rows - len(actions), self.rows)

    def scale_rewards(self, scale: float, largest: float) -> None:
        """Multiply all rewards by `scale` and clip them to [-largest, largest]."""
        self._rewards = [min(max(reward * scale, -largest), largest) for reward in self._rewards]

    def turns(self, rows: Sequence[int]) -> Sequence[Turn]:
        """Return a view of these rows, in the order given; nothing may be added afterwards."""
        if self._actions is not None:
            return TransitionView(self, torch.as_tensor(rows))
        return [Turn(self._completions[row], self._rewards[row]) for row in rows]

    @cached_property
    def _actions(self) -> ActionBatch | None:
        """Return all rows as columns, if every action batch has columns."""
        parts = [actions for actions in self._batches if isinstance(actions, ActionBatch)]
        return ActionBatch.concatenate(parts) if parts and len(parts) == len(self._batches) else None

    @cached_property
    def _completions(self) -> list[Completion]:
        return [completion for actions in self._batches for completion in actions]

    @cached_property
    def columns(self) -> dict[str, Tensor]:
        """All rows of a table of columns, with "reward"."""
        assert self._actions is not None
        return {**self._actions.all_columns, "reward": torch.tensor(self._rewards)}

    def output(self, row: int) -> Any:
        """Return the decoded action of a row of a table of columns."""
        assert self._actions is not None
        return self._actions.output[row]


class TransitionView(Sequence[Turn]):
    """Some rows of a transition table, in order: the turns of one episode."""

    def __init__(self, table: TransitionTable, rows: Tensor):
        self.table, self.rows = table, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return TransitionView(self.table, self.rows[index])
        row, columns = int(self.rows[index]), self.table.columns
        return Turn(completion(columns, row, self.table.output(row)), float(columns["reward"][row]))

    def column(self, name: str) -> Tensor:
        """Return one column [n, ...] of these rows."""
        return self.table.columns[name][self.rows]

    @cached_property
    def choices(self) -> int:
        """Number of choices that the policy made."""
        return int(self.column("action_mask").sum())

    @cached_property
    def env_reward(self) -> float:
        """The summed environment reward of these decisions."""
        return float(self.column("reward").double().sum())


def columns_of(episodes: Iterable[Sequence[Turn]]) -> dict[str, Tensor] | None:
    """Concatenate the columns of the turns of several episodes; None unless all are rows of one table."""
    parts = [turns for turns in episodes if len(turns)]
    if not parts or any(not isinstance(turns, TransitionView) or turns.table is not parts[0].table for turns in parts):  # type: ignore[attr-defined]
        return None
    rows = torch.cat([turns.rows for turns in parts])  # type: ignore[attr-defined]
    return {name: column[rows] for name, column in parts[0].table.columns.items()}  # type: ignore[attr-defined]
