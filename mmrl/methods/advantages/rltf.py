"""RLTF: rewards of unit tests relative to the greedy program, and a penalty of the tokens of the line with the error.

RLTF: Reinforcement Learning from Unit Test Feedback, 2023, arXiv:2307.04349, and its released code.

- r = -1, -0.6, -0.3 + 1.3 * (share of tests passed) or 1: `tasks.code.rewards:unit_test_feedback`
- which lines an error is about: `find_error_lines`; -w at their tokens: `PenaliseErrorLines`
- A_t = r - r(greedy program) - w [t in those lines]: `FineGrainedAdvantage`
- samples of earlier iterations, trained on as they were scored then: `mmrl.transforms.rows.replay.ReplayRows`
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from mmrl.annotators.greedy_baseline import GreedyBaselineAdvantage
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.steps import fit_texts, locate_steps


def find_error_lines(outcome: str, reason: str, line: int, count: int) -> range:
    """Return the lines, from 1, that an error of a program of `count` lines is about.

    A syntax error in the last line, endless recursion and a timeout are about all lines, other errors about the one in
    which they occur, and failed tests, or errors whose line is not known, about none.
    Source: RLTF, 2023, the released program_feedback.py, arXiv:2307.04349.

    Args:
        outcome: "syntax_error", "raised", "timed_out" or another word.
        reason: name of the exception.
        line: of the error; 0 where it is not known.
        count: of lines.
    """
    whole = outcome == "timed_out" or (outcome == "raised" and reason == "RecursionError")
    if whole or (outcome == "syntax_error" and line >= count):
        return range(1, count + 1)
    located = outcome == "syntax_error" or (outcome == "raised" and reason != "RuntimeError")
    return range(line, line + 1) if located and line > 0 else range(0)


@dataclass(frozen=True)
class PenaliseErrorLines(EpisodeTransform):
    """Write `token_rewards`: -weight at the tokens of the lines that the program's error is about, 0 elsewhere.

    The task reports info "outcome", "reason" and "error_line", as `tasks.code` does. The completion has to be the
    program alone, in one row. Source: RLTF, 2023, fine-grained feedback, arXiv:2307.04349.

    Args:
        weight: of the penalty.
    """

    weight: float = 0.2

    def __post_init__(self) -> None:
        check_at_least(0, "penalise_error_lines", weight=self.weight)

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [self._penalise(episode, ctx) for episode in episodes]

    def _penalise(self, episode: Episode, ctx: Context) -> Episode:
        info = episode.info
        if "error_line" not in info or len(episode.turns) != 1:
            raise ValueError(
                f"penalise_error_lines: {episode.prompt.key!r} has no info 'error_line' of one completion; use a task "
                "that runs programs, such as code, and rollouts of one row"
            )
        done, program = episode.turns[0].completion, str(episode.output)
        lines = program.splitlines(keepends=True) or [""]
        wrong = find_error_lines(info["outcome"], info["reason"], info["error_line"], len(lines))
        # (tokens,) line number of each token, from 1
        line = locate_steps(fit_texts(ctx.policy.token_texts(done.action.tolist()), program), lines) + 1
        hit = torch.isin(line, torch.tensor(list(wrong), dtype=line.dtype))
        return replace(episode, turns=[episode.turns[0].with_columns(token_rewards=-self.weight * hit.float())])


@dataclass(frozen=True)
class FineGrainedAdvantage(GreedyBaselineAdvantage):
    """Reward of an episode minus that of the greedy program, plus the token's own reward: A_t = r - r_greedy + r_t.

    Nothing is summed over later tokens. Source: RLTF, 2023, arXiv:2307.04349.
    """

    def reads(self) -> frozenset[str]:
        return super().reads() | {"token_rewards"}

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        relative = super().__call__(batch, ctx)["advantages"]
        advantages = relative + batch["token_rewards"]
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantages, 0.0))
