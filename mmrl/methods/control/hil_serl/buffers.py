"""HIL-SERL: an online buffer, and one of demonstrations and interventions, of which each gives half of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_fraction
from mmrl.data.replay_buffer import ReplayBuffer, sample_transitions


class HumanReplayBuffer(ReplayBuffer):
    """Replay buffer of all online transitions, with a second one of those of humans: demonstrations, interventions.

    A batch has `human_share` of its rows from the second buffer and the others from the first, each drawn uniformly
    with replacement (RLPD's symmetric sampling). Interventions are in both. While the second one is empty, all rows are
    from the first.
    Source: Ball et al., "Efficient Online Reinforcement Learning with Offline Data", 2023, section 4.1,
    arXiv:2302.02948; Luo et al., 2024, section III, arXiv:2410.21845.

    Args:
        capacity: rows of the online buffer.
        batch_size: transitions of one gradient step, of both buffers together.
        gamma: discount factor of a reward one step later.
        n_steps: rewards that are summed before the critic's value is added.
        human_capacity: rows of the second buffer, the oldest being overwritten.
        human_share: of a batch.
    """

    def __init__(
        self,
        capacity: int = 1_000_000,
        batch_size: int = 256,
        gamma: float = 0.99,
        n_steps: int = 1,
        human_capacity: int = 100_000,
        human_share: float = 0.5,
    ):
        super().__init__(capacity, batch_size, gamma, n_steps)
        check_at_least(1, "data.replay", human_capacity=human_capacity)
        check_fraction("data.replay", human_share=human_share)
        self.human_share = human_share
        self.human = ReplayBuffer(human_capacity, batch_size, gamma, n_steps)

    def add(self, rows: Batch, final: Batch) -> None:
        super().add(rows, final)
        if rows:
            self.human.add(*select_interventions(rows, final))

    def sample(self, updates: int, rng: np.random.Generator) -> Batch:
        """Sample the batches of several gradient steps, columns [updates, batch_size, ...]: the human's rows last."""
        human = round(self.human_share * self.batch_size) if self.human.num_transitions else 0
        parts = []
        for buffer, count in ((self, self.batch_size - human), (self.human, human)):
            if count:
                storage = buffer.storage
                index = sample_transitions(storage.columns["end"], storage.size, updates * count, rng)
                parts.append({name: c.unflatten(0, (updates, count)) for name, c in buffer.read(index).items()})
        return Batch({name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]})

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), "replay/human_rows": float(self.human.storage.size)}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "human": self.human.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.human.load_state_dict(state["human"])


def select_interventions(rows: Batch, final: Batch) -> tuple[Batch, Batch]:
    """The transitions of humans, each uninterrupted run of them as an episode of its own.

    A run that ends before its episode does is closed by the observation of the row after it.

    Args:
        rows: whole episodes or segments with the column `intervention`, as `ReplayBuffer.add` takes them.
        final: observations after those that did not terminate, and their "episode".

    Returns:
        The arguments of `ReplayBuffer.add` for the human's transitions alone; an empty batch for none.
    """
    human, episode, last = rows["intervention"].bool(), rows["episode"], rows["is_last"]
    # [N] bool: a run ends where its episode ends or the next row is the policy's; it begins after the end of another
    run_ends = human & (last | ~torch.cat([human[1:], human.new_zeros(1)]))
    begins = human & torch.cat([human.new_ones(1), (last | ~human)[:-1]])
    runs = begins.long().cumsum(0) - 1  # [N] number of the run, where a human acts
    index = human.nonzero().flatten()
    if not len(index):
        return Batch(), Batch(episode=torch.zeros(0, dtype=torch.long))
    selected = rows.select(index).with_columns(episode=runs[index], group=runs[index], is_last=run_ends[index])
    # one final observation for each run that did not terminate
    names = [name for name in rows if name.startswith("obs.")]
    place = {int(number): row for row, number in enumerate(final["episode"].tolist())}
    closed = [row for row in run_ends.nonzero().flatten().tolist() if not rows["is_terminal"][row]]
    following: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for row in closed:
        at_end = bool(last[row])
        for name in names:
            column = final[name] if at_end else rows[name]
            following[name].append(column[place[int(episode[row])] if at_end else row + 1])
    columns = {name: torch.stack(parts) for name, parts in following.items() if parts}
    return selected, Batch(columns, episode=runs[torch.tensor(closed, dtype=torch.long)])
