"""Decisions of the past, to be learnt from many times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.replay.ring import Ring

GOES_ON, CUT, TERMINAL, SEEN = 0, 1, 2, 3
"""What follows a row: the next row; the next row, which is only seen; nothing. And rows that are only seen."""


class Replay:
    """The last decisions, drawn uniformly with replacement.

    An observation is kept once: that of the next decision is what follows this one. A piece of a life that did not
    terminate, because time ran out or the iteration ended, is closed by one row that is only seen and never drawn, so
    that values go on through it; what is drawn from a life that terminated has discount 0.

    A drawn row has reward = sum_{k<m} discount^k r_k and the column discount = discount^m, with m = n, or less where
    the piece ends before that. Source: Sutton and Barto, Reinforcement Learning, 2018, equation 7.1.

    Args:
        capacity: rows that are kept, the oldest being overwritten; their memory is bounded by it and reported.
        batch: rows of one update.
        discount: of a reward one decision later.
        n: decisions whose rewards are counted before the critic is asked.
        keep: further columns that are stored.
    """

    def __init__(
        self,
        capacity: int = 1_000_000,
        batch: int = 256,
        discount: float = 0.99,
        n: int = 1,
        keep: tuple[str, ...] = (),
    ):
        for name, value in (("capacity", capacity), ("batch", batch), ("n", n)):
            if value < 1:
                raise ValueError(f"data.replay.{name} must be at least 1, got {value}")
        if not 0 <= discount <= 1:
            raise ValueError(f"data.replay.discount must be in [0, 1], got {discount}")
        self.capacity, self.batch, self.discount, self.n = capacity, batch, discount, n
        self.keep = tuple(keep)
        self.ring = Ring(capacity)
        self.decisions = 0  # added so far, demonstrations included

    @property
    def writes(self) -> frozenset[str]:
        """Columns of what is drawn, beside the observations."""
        return frozenset({"action", "reward", "discount", "mask", *self.keep})

    def add(self, rows: Batch, following: Batch) -> None:
        """Append collated rows, and after the last row of each episode in `following` what was seen there.

        Args:
            rows: whole pieces of lives, in order.
            following: columns obs.* and "episode", one row for each piece that did not terminate, in order.
        """
        episode, last = rows["episode"], rows["last"]
        closed = torch.isin(episode, following["episode"]) if len(following["episode"]) else torch.zeros_like(last)
        open_end = last & ~closed & ~rows["terminal"]
        if open_end.any():
            raise ValueError(
                f"episodes {episode[open_end].tolist()} neither terminated nor say what followed them; play them with "
                "mmrl.rollouts.stream.FixedHorizon"
            )
        ends = torch.where(rows["terminal"], TERMINAL, torch.where(last & closed, CUT, GOES_ON)).to(torch.uint8)
        # every row moves up by the seen rows before it
        closes = (last & closed).long()
        place = torch.arange(rows.rows) + closes.cumsum(0) - closes
        seen = place[last & closed] + 1
        total = rows.rows + len(seen)

        def joined(column: Tensor, other: Tensor | None) -> Tensor:
            out = column.new_zeros(total, *column.shape[1:])
            out[place] = column
            if other is not None and len(seen):
                out[seen] = other
            return out

        names = [name for name in rows if name.startswith("obs.")]
        columns = {name: joined(rows[name], following.get(name)) for name in names}
        columns |= {name: joined(rows[name], None) for name in ("action", "reward", *self.keep)}
        columns["end"] = joined(ends, torch.full((len(seen),), SEEN, dtype=torch.uint8))
        self.ring.write(columns)
        self.decisions += rows.rows

    def draw(self, updates: int, rng: np.random.Generator) -> Batch:
        """The batches of so many updates: columns [updates, batch, ...]."""
        index = self._drawn(updates * self.batch, rng)
        reward, discount, following = self._ahead(index)
        columns = self.ring.columns
        action = columns["action"][index]
        rows = {"action": action, "reward": reward, "discount": discount}
        rows |= {"mask": torch.ones(action.shape[:2], dtype=torch.bool), **{n: columns[n][index] for n in self.keep}}
        for name in columns:
            if name.startswith("obs."):
                rows |= {name: columns[name][index], f"next.{name[4:]}": columns[name][following]}
        return Batch({name: column.unflatten(0, (updates, self.batch)) for name, column in rows.items()})

    def _drawn(self, count: int, rng: np.random.Generator) -> Tensor:
        """Rows that are decisions, each as likely as any other."""
        end = self.ring.columns["end"]
        found: list[Tensor] = []
        while count > 0:
            index = torch.from_numpy(rng.integers(self.ring.size, size=count))
            index = index[end[index] != SEEN]
            found.append(index)
            count -= len(index)
        return torch.cat(found)

    def _ahead(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards of the next n decisions, the discount of what follows them, and its row."""
        end, paid = self.ring.columns["end"], self.ring.columns["reward"]
        reward, factor = torch.zeros(len(index), dtype=paid.dtype), torch.ones(len(index), dtype=paid.dtype)
        going, row = torch.ones(len(index), dtype=torch.bool), index
        for _ in range(self.n):
            reward = reward + torch.where(going, factor * paid[row], 0)
            factor = torch.where(going, factor * self.discount, factor)
            factor = torch.where(going & (end[row] == TERMINAL), 0, factor)
            following = (row + 1) % self.capacity
            last = end[row] != GOES_ON
            row = torch.where(going, following, row)
            going = going & ~last
        return reward, factor, row

    def metrics(self) -> dict[str, float]:
        """How much is kept and what it may take."""
        return {"replay/rows": float(self.ring.size), "replay/gib": self.ring.bytes / 2**30}

    def state_dict(self) -> dict[str, Any]:
        return {"ring": self.ring.state_dict(), "decisions": self.decisions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.ring.load_state_dict(state["ring"])
        self.decisions = state["decisions"]
