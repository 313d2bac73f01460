"""StepCoder: a curriculum of code completion from ever earlier lines, and a loss on the tokens of executed lines.

StepCoder: Improve Code Generation with Reinforcement Learning from Compiler Feedback, 2024, arXiv:2402.01391.

- reward by the compiler and the unit tests: `compiler_feedback`
- curriculum of code completion subtasks (CCCS): `CompletionCurriculum`
- fine-grained optimisation (FGO): `MaskUnexecuted`
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.curricula.base import success_rates
from mmrl.rewards.steps import split_steps
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.text.forced import surround
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.steps import fit_texts, locate_steps


def compiler_feedback(parses: float, runs: float, exact: float) -> float:
    """1 if all tests pass, -0.3 if one fails, -0.6 for a failing call, -1 for a program that does not compile.

    Source: StepCoder, 2024, the reward of unit tests, arXiv:2402.01391.
    """
    if parses < 1:
        return -1.0
    return -0.6 if runs < 1 else (1.0 if exact >= 1 else -0.3)


class CompletionCurriculum(Rollout):
    """Completions of the task's demonstration from its last lines, later from earlier lines and the prompt (CCCS).

    All but `lines` lines of the solution are forced tokens, which are read and not trained on. After an iteration whose
    success rate exceeds `threshold`, one line more is left to write; a prompt whose solution has no more lines is
    answered from its beginning. Processes count alike, and the number is saved. Source: StepCoder, 2024, curriculum of
    code completion subtasks, arXiv:2402.01391.

    Args:
        lines: left to write at first.
        threshold: success rate of an iteration above which there is one line more.
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(self, lines: int = 1, threshold: float = 0.5, score_name: str = "exact"):
        check_at_least(1, "rollout", lines=lines)
        check_interval("rollout", "[0, 1)", threshold=threshold)
        self.lines, self.threshold, self.score_name = lines, threshold, score_name

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        # one request per sample, forced to begin with the ids [P] of the solution's first lines
        episodes, requests, prefixes = [], [], []
        for slot, prompt in prompts:
            raw, prefix = text_observation(prompt), self.find_prefix(prompt, ctx)
            observation = ctx.policy.encode(raw)
            for index in ctx.sample_indices(slot):
                seed, forced_ids = turn_seed(slot, index, ctx), prefix if len(prefix) else None
                requests.append(Request(raw, seed, forced_ids, prompt_id=(slot, len(prefix))))
                episodes.append(Episode(prompt, slot, index, info={"prefix": len(prefix)}))
                prefixes.append((prefix, observation))
        for episode, (prefix, observation), done in zip(episodes, prefixes, ctx.engine.sample(requests, ctx.sampling)):
            # the row holds prefix and completion in the context of the prompt; the prefix is masked
            text = ctx.policy.decode([*prefix.tolist(), *done.action.tolist()])
            row = surround(done, prefix, prefix[:0], text)
            episode.turns = [Turn(replace(row, observation=observation, prompt_id=episode.group))]
            episode.ended = done.ended
        return episodes

    def find_prefix(self, prompt: Prompt, ctx: Context) -> Tensor:
        """Return the ids [P] of the solution's lines before those that are left to write."""
        ids = ctx.policy.encode_demonstration(prompt.observation, solution := ctx.task.demonstrate(prompt.index))
        texts = split_steps(solution)
        line = locate_steps(fit_texts(ctx.policy.token_texts(ids.tolist()), solution), texts)
        return ids[line < len(texts) - self.lines]

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        rates = [rate for group in groups for rate in success_rates(group, self.score_name)]
        if rates and sum(rates) / len(rates) > self.threshold:
            self.lines += 1

    def metrics(self) -> dict[str, float]:
        return {"rollout/lines_to_write": float(self.lines)}

    def state_dict(self) -> dict[str, Any]:
        return {"lines": self.lines}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.lines = int(state["lines"])


def find_executed(program: str, executed: Sequence[int]) -> set[int]:
    """Return the lines, from 1, of the statements that were executed; a simple statement may have several lines."""
    lines = set(executed)
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            lines |= set(span) if lines & set(span) else set()
    return lines


@dataclass(frozen=True)
class MaskUnexecuted(EpisodeTransform):
    """Masks the tokens of lines that no unit test executed: their `action_mask` becomes False (FGO).

    The task code reports the lines in info["executed_lines"]. A program that did not run to its end on every test keeps
    all its tokens. The completion has to be the program alone, in one row. Source: StepCoder, 2024, fine-grained
    optimization, arXiv:2402.01391.
    """

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [self._mask(episode, ctx) for episode in episodes]

    def _mask(self, episode: Episode, ctx: Context) -> Episode:
        if "executed_lines" not in episode.info or len(episode.turns) != 1:
            raise ValueError(
                f"mask_unexecuted: {episode.prompt.key!r} has no info 'executed_lines' of one completion; "
                "use a task that runs programs, such as code, and rollouts of one row"
            )
        if episode.info["outcome"] not in ("passed", "failed"):
            return episode
        done, program = episode.turns[0].completion, str(episode.output)
        lines = find_executed(program, episode.info["executed_lines"])
        # (tokens,) line number of each token, from 1
        texts = fit_texts(ctx.policy.token_texts(done.action.tolist()), program)
        line = locate_steps(texts, program.splitlines(keepends=True)) + 1
        action_mask = done.action_mask & torch.isin(line, torch.tensor(sorted(lines), dtype=line.dtype))
        return replace(episode, turns=[replace(episode.turns[0], completion=replace(done, action_mask=action_mask))])
