"""VerlTool: the reward of an answer after calls of several tools, less a penalty for invalid calls.

VerlTool: Towards Holistic Agentic Reinforcement Learning with Tool Use, 2025, arXiv:2509.01055.

- tools as plug-ins, one class each: `mmrl.tools.base.Tool`, by their names in `rollout.tools`
- trajectories that go on while others wait for their tools, results without a part in the loss:
  `mmrl.rollouts.text.tools.ToolUse` with `batch_timeout_s`
- penalty for invalid calls: `ToolReward`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.types import Episode
from mmrl.rewards.compose import WeightedSum

VALID = ("ok", "truncated")  # outcomes of calls whose result the policy read


@dataclass(frozen=True)
class ToolReward(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k - invalid_penalty * (number of invalid calls).

    Invalid is a call of no tool, one whose arguments the tool refuses, or one that the tool reports as an error of the
    caller. Scores beside those of the task: `calls` and `invalid_calls`, numbers of an episode's calls, and `tools`,
    the number of different tools with a valid call.
    Source: VerlTool, 2025, arXiv:2509.01055, section 3; released code: reward managers of verl_tool.

    Args:
        weights: by name of the score.
        invalid_penalty: for each invalid call.
    """

    invalid_penalty: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(0, "reward", invalid_penalty=self.invalid_penalty)

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self._count(episode) for episode in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        invalid = [self._count(episode)["invalid_calls"] for episode in group]
        return [reward - self.invalid_penalty * count for reward, count in zip(super().__call__(group), invalid)]

    def _count(self, episode: Episode) -> dict[str, float]:
        if "calls" not in episode.info and episode.ended != "error":
            raise ValueError(
                f"reward: {episode.prompt.key!r} was answered without tools; VerlTool's reward needs a rollout with "
                "tools, such as rollout=tools"
            )
        calls = episode.info.get("calls", ())
        valid = [name for name, _, outcome in calls if outcome in VALID]
        counts = {"calls": len(calls), "invalid_calls": len(calls) - len(valid), "tools": len(set(valid))}
        return {name: float(count) for name, count in counts.items()}
