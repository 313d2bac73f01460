"""Episodes whose choices last several steps: options, such as skills and macro-actions.

Between MDPs and semi-MDPs, 1999, Artificial Intelligence 112, section 3.

- the observation of a choice that says when it was made: `ELAPSED`
- how long each choice was played, which `OptionGAE` discounts by: `add_durations`
"""

from __future__ import annotations

import torch

from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode

ELAPSED = "elapsed"
"""Name of the observation that says how many steps of the episode were played."""
register_columns(
    {"durations": Column("[N]", "control steps", "how long the skill (option) that a row chose was played")}
)


def add_durations(episode: Episode, need: str) -> None:
    """Give the turns of an episode `durations`: steps until the next choice, or until the end of the episode.

    The episode's scores have `decisions`, steps of the whole episode.

    Args:
        episode: of choices with the observation `ELAPSED`.
        need: the error where the policy does not keep that observation, with the remedy.

    Raises:
        ConfigError: it does not.
    """
    if any(ELAPSED not in turn.completion.observation for turn in episode.turns):
        raise ConfigError(need)
    starts = [float(turn.completion.observation[ELAPSED]) for turn in episode.turns]
    ends = [*starts[1:], episode.info["scores"]["decisions"]]
    episode.turns = [
        turn.with_columns(durations=torch.tensor(end - start)) for turn, start, end in zip(episode.turns, starts, ends)
    ]
