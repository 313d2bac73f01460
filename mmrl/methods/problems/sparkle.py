"""SPARKLE: second training stage with partial solutions as hints in the prompts of unsolved problems.

Beyond Accuracy: Dissecting Mathematical Reasoning for LLMs Under Reinforcement Learning, 2025, arXiv:2506.04723.

- 0 to 4 quarters of the solution as hints of unsolved problems: `HintedUnsolved`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode, Prompt
from mmrl.curricula.base import success_rates
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.text.hints import INSTRUCTION, HintedPrompts


class HintedUnsolved(HintedPrompts):
    """Gives hints of 0, 25, 50, 75 or 100 % of the solution to problems without a success in the first stage.

    Until iteration `start_iteration` nothing is hinted, and problems that a completion solves are remembered. From then
    on a problem that was visited and never solved draws one of `fractions` at each visit; one that was solved once, in
    however many completions, or never visited, keeps its prompt. The answer has to be written also after a whole
    solution. Source: SPARKLE, 2025, multi-stage reinforcement learning, arXiv:2506.04723.

    Args:
        rollout: what plays the prompts.
        start_iteration: first iteration of the second stage.
        fractions: of the solution's characters.
        score_name: "reward", or the name of a score, above 0 for a solved problem.
        instruction: text between the user's message and the hint.
    """

    def __init__(
        self,
        rollout: Rollout,
        start_iteration: int,
        fractions: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
        score_name: str = "exact",
        instruction: str = INSTRUCTION,
    ):
        super().__init__(rollout, fractions, 1.0, instruction)
        check_at_least(0, "rollout", start_iteration=start_iteration)
        self.start_iteration, self.score_name = start_iteration, score_name
        self.solved: dict[int, bool] = {}  # whether the first stage solved a problem that it visited
        self.hinted = 0.0  # share of the prompts of the last collection that had a hint

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = super().collect(prompts, ctx)
        for episode in episodes:
            episode.info["first_stage"] = ctx.iteration < self.start_iteration
        return episodes

    def hint(self, slot: int, prompt: Prompt, ctx: Context) -> Prompt:
        if ctx.iteration < self.start_iteration or self.solved.get(prompt.index, True):
            return prompt
        return super().hint(slot, prompt, ctx)

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        super().observe(groups)
        self.hinted = sum("hint" in group[0].prompt.info for group in groups) / max(len(groups), 1)
        for group in groups:
            if group[0].info.get("first_stage"):
                index = group[0].prompt.index
                success = any(rate > 0 for rate in success_rates(group, self.score_name))
                self.solved[index] = success or self.solved.get(index, False)

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), "rollout/hinted": self.hinted}

    def state_dict(self) -> dict[str, Any]:
        return {"solved": dict(self.solved), "rollout": super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.solved = {int(index): success for index, success in state["solved"].items()}
        super().load_state_dict(state["rollout"])
