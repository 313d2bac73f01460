"""Decisions of many worlds as columns: what an engine answers at once, and the turns of episodes cut out of it.

Everything here can also be read row by row, as the `Completion`s and `Turn`s that other rollouts make; those are made
when asked for. `mmrl.learners.collate` takes the columns as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mmrl.types import Completion, Turn

_OWN = frozenset({"action", "logprobs", "mask", "values", "version", "reward"})


@dataclass(frozen=True)
class Acts(Sequence[Completion]):
    """What a policy did in n contexts.

    Columns are named as in `mmrl.columns`, the policy's inputs "obs.<name>"; all have n rows. `rest` gives those that
    do not shape the action, such as values, from the others: once for all rows of many answers, or when they are read.
    """

    columns: dict[str, Tensor]  # [n, ...], on the CPU: action, logprobs, mask, obs.* and what is drawn with them
    output: Sequence[Any]  # n decoded actions
    rest: Callable[[dict[str, Tensor]], dict[str, Tensor]]  # temperature, version, values where there are any

    def __len__(self) -> int:
        return len(self.output)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return Acts({name: column[row] for name, column in self.columns.items()}, self.output[row], self.rest)
        return completion(self.whole, row, self.output[row])

    @cached_property
    def whole(self) -> dict[str, Tensor]:
        """All columns."""
        return self.columns | self.rest(self.columns)

    @staticmethod
    def joined(parts: Sequence[Acts]) -> Acts:
        """The rows of several answers of one policy, one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = {name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns}
        return Acts(columns, [output for part in parts for output in part.output], parts[0].rest)


def completion(columns: dict[str, Tensor], row: int, output: Any) -> Completion:
    """One row on its own."""
    return Completion(
        observation={name[4:]: column[row] for name, column in columns.items() if name.startswith("obs.")},
        action=columns["action"][row],
        logprobs=columns["logprobs"][row],
        mask=columns["mask"][row],
        output=output,
        value=columns["values"][row] if "values" in columns else None,
        extra={name: c[row] for name, c in columns.items() if name not in _OWN and not name.startswith("obs.")},
        version=int(columns["version"][row]),
    )


class Table:
    """Grows by the answers of an engine and what they earned; turns are cut out of it when it is complete."""

    def __init__(self) -> None:
        self.rows = 0
        self._acts: list[Sequence[Completion]] = []
        self._rewards: list[float] = []

    def add(self, acts: Sequence[Completion], rewards: Sequence[float]) -> range:
        """Rows for these decisions; their numbers."""
        if len(acts) != len(rewards):
            raise ValueError(f"{len(acts)} decisions and {len(rewards)} rewards do not belong together")
        if len(acts):
            self._acts.append(acts)
        self._rewards.extend(rewards)
        self.rows += len(acts)
        return range(self.rows - len(acts), self.rows)

    def turns(self, rows: Sequence[int]) -> Sequence[Turn]:
        """Those rows, in the order given; nothing may be added afterwards."""
        if self._whole is not None:
            return Turns(self, torch.as_tensor(rows))
        return [Turn(self._completions[row], self._rewards[row]) for row in rows]

    @cached_property
    def _whole(self) -> Acts | None:
        """All rows as columns, where every answer came in columns."""
        parts = [acts for acts in self._acts if isinstance(acts, Acts)]
        return Acts.joined(parts) if parts and len(parts) == len(self._acts) else None

    @cached_property
    def _completions(self) -> list[Completion]:
        return [completion for acts in self._acts for completion in acts]

    @cached_property
    def columns(self) -> dict[str, Tensor]:
        """All rows of a table of columns, "reward" among them."""
        assert self._whole is not None
        return {**self._whole.whole, "reward": torch.tensor(self._rewards)}

    def output(self, row: int) -> Any:
        """The decoded action of a row of a table of columns."""
        assert self._whole is not None
        return self._whole.output[row]


class Turns(Sequence[Turn]):
    """Some rows of a table, in order: the turns of one episode."""

    def __init__(self, table: Table, rows: Tensor):
        self.table, self.rows = table, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Turns(self.table, self.rows[place])
        row, columns = int(self.rows[place]), self.table.columns
        return Turn(completion(columns, row, self.table.output(row)), float(columns["reward"][row]))

    def column(self, name: str) -> Tensor:
        """[n, ...] one column of these rows."""
        return self.table.columns[name][self.rows]

    @cached_property
    def choices(self) -> int:
        """How many choices the policy made."""
        return int(self.column("mask").sum())

    @cached_property
    def paid(self) -> float:
        """What the environment paid for these decisions together."""
        return float(self.column("reward").double().sum())


def columns_of(episodes: Iterable[Sequence[Turn]]) -> dict[str, Tensor] | None:
    """The columns of the turns of several episodes, one after the other; None unless all are rows of one table."""
    parts = [turns for turns in episodes if len(turns)]
    if not parts or any(not isinstance(turns, Turns) or turns.table is not parts[0].table for turns in parts):  # type: ignore[attr-defined]
        return None
    rows = torch.cat([turns.rows for turns in parts])  # type: ignore[attr-defined]
    return {name: column[rows] for name, column in parts[0].table.columns.items()}  # type: ignore[attr-defined]
