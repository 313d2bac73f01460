"""RLAD: one role writes abstractions of a problem, which are short hints, and the other solves it with one of them.

RLAD: Training LLMs to Discover Abstractions for Solving Reasoning Problems, 2025, arXiv:2510.02263.

- hints, and the solutions that read them: `Abstractions`
- rewards of both roles: `AbstractionReward`; their advantages: `AbstractionAdvantage`
- accuracy of m hints with n solutions each, where m n is the budget at test time: `BudgetAccuracy`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, nan

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.files.patterns import fill_template
from mmrl.ops.advantage import group_advantage
from mmrl.rewards.answers.leak import leaks
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.base import Rollout, text_observation, turn_seed

PROPOSER, SOLVER, PLAIN = "proposer", "solver", "plain"
"""Roles of episodes: they write a hint, read one, or read none."""

register_columns(
    {
        "abstraction": Column(
            "[N]", "id", "RLAD: number of the hint that a solution reads; -1: the row writes a hint, -2: it reads none"
        )
    }
)


class Abstractions(Rollout):
    """Sample `data.group_size` hints for each problem; with each hint `solutions` solutions that read it.

    A hint is a whole completion, also one that was cut at the token limit. One that is empty or holds the problem's
    answer as whole words has no solutions; `info["proposal"]` is "valid", "empty", "leaked" or "failed". A hint is an
    error where all its solutions are. Source: RLAD, 2025, section 4, arXiv:2510.02263.

    Args:
        solutions: of each hint.
        plain: further solutions for each hint that read no hint.
        proposer_prompt: the proposer's last message, where {question} is that of the problem.
        solver_prompt: the solver's, with {question} and {abstraction}, which is empty without a hint.
        return_hints: as episodes that are trained on. False for held-out problems: solutions alone, also with hints
            that hold the answer, which is not known then.
    """

    def __init__(
        self,
        solutions: int = 4,
        plain: int = 1,
        proposer_prompt: str = "{question}\nWrite an insight that helps to solve this problem, but not its answer.",
        solver_prompt: str = "{question}\n{abstraction}",
        return_hints: bool = True,
    ):
        check_at_least(1, "rollout", solutions=solutions)
        check_at_least(0, "rollout", plain=plain)
        _check_template("proposer_prompt", proposer_prompt, "question")
        _check_template("solver_prompt", solver_prompt, "question", "abstraction")
        self.solutions, self.plain, self.return_hints = solutions, plain, return_hints
        self.proposer_prompt, self.solver_prompt = proposer_prompt, solver_prompt

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"abstraction"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        # a hint and its solutions have neighbouring sample indices
        size = 1 + self.solutions + self.plain
        roles = [PROPOSER, *[SOLVER] * self.solutions, *[PLAIN] * self.plain]
        hints, solutions = [], []
        for slot, prompt in prompts:
            asked = write_question(prompt, self.proposer_prompt)
            hints += [_begin(asked, slot, number, number * size, PROPOSER) for number in ctx.sample_indices(slot)]
        _sample(hints, ctx)
        problems = dict(prompts)
        for hint in hints:
            self._judge(hint)
            for place, role in enumerate(roles):
                if role == PLAIN or (role == SOLVER and self._is_read(hint)):
                    text = str(hint.output) if role == SOLVER else ""
                    asked = write_question(problems[hint.group], self.solver_prompt, abstraction=text)
                    solutions.append(_begin(asked, hint.group, hint.info["hint"], hint.sample_index + place, role))
        _sample(solutions, ctx)
        if not self.return_hints:
            return solutions
        solved = {(e.group, e.info["hint"]) for e in solutions if e.role == SOLVER and e.ended != "error"}
        for hint in hints:
            if hint.info["proposal"] == "valid" and (hint.group, hint.info["hint"]) not in solved:
                hint.ended = "error"  # without a solution it has no reward
                hint.info["error"] = "all solutions with this hint failed"
        by_slot = group_episodes([*hints, *solutions])
        return [e for slot, _ in prompts for e in sorted(by_slot[slot], key=lambda e: e.sample_index)]

    def _judge(self, hint: Episode) -> None:
        """Write what became of a hint into its info."""
        text = str(hint.output or "")
        if hint.ended == "error":
            outcome = "failed"
        elif not text.strip():
            outcome = "empty"
        else:
            outcome = "leaked" if leaks(text, str(hint.prompt.answer)) else "valid"
        hint.info |= {"proposal": outcome, "counts": {f"abstractions/{outcome}": 1}}

    def _is_read(self, hint: Episode) -> bool:
        return hint.info["proposal"] == "valid" or (hint.info["proposal"] == "leaked" and not self.return_hints)


def _begin(prompt: Prompt, slot: int, hint: int, sample_index: int, role: str) -> Episode:
    return Episode(prompt, slot, sample_index, role=role, info={"hint": hint})


def _sample(episodes: Sequence[Episode], ctx: Context) -> None:
    """Sample the completion of each episode."""
    requests = []
    for episode in episodes:
        seed = turn_seed(episode.group, episode.sample_index, ctx)
        read = episode.info["hint"] if episode.role == SOLVER else None
        requests.append(Request(text_observation(episode.prompt), seed, prompt_id=(episode.group, episode.role, read)))
    for episode, done in zip(episodes, ctx.engine.sample(requests, ctx.sampling) if requests else []):
        abstraction = {PROPOSER: -1, SOLVER: episode.info["hint"], PLAIN: -2}[episode.role]
        episode.turns = [Turn(done).with_columns(abstraction=torch.tensor(abstraction))]
        episode.ended = done.ended
        if done.ended == "error":
            episode.info["error"] = "the engine gave no completion"


def write_question(prompt: Prompt, template: str, **values: str) -> Prompt:
    """Return the prompt with a template in place of its last message's text, which is {question} in the template."""
    last = text_observation(prompt)["messages"][-1]
    content = last["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    question = "".join(part["text"] for part in parts if part["type"] == "text")
    text = fill_template(template, question=question, **values)
    others = [part for part in parts if part["type"] != "text"]
    written = [*others, {"type": "text", "text": text}] if others else text
    return replace(prompt, messages=(*prompt.messages[:-1], {**last, "content": written}))


def _check_template(key: str, template: str, *names: str) -> None:
    for name in names:
        if f"{{{name}}}" not in template:
            raise ValueError(f"rollout.{key}={template!r} lacks {{{name}}}; write it where its value belongs")


@dataclass(frozen=True)
class AbstractionReward(WeightedSum):
    """Reward of RLAD: a solution with a hint earns sum_k weights_k * scores_k, one without 0, a hint their mean.

    A solver that also earned without hints could learn to ignore them; so the KL penalty alone acts there. A hint
    without solutions earns 0. Source: RLAD, 2025, section 4, arXiv:2510.02263.

    Args:
        weights: by name of the score.
    """

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        solvers = [episode for episode in group if episode.role == SOLVER]
        solver_rewards = super().__call__(solvers)
        earned: dict[int, list[float]] = {}
        for solver, reward in zip(solvers, solver_rewards):
            earned.setdefault(solver.info["hint"], []).append(reward)
        rewards = iter(solver_rewards)
        return [next(rewards) if e.role == SOLVER else hint_reward(e, earned) for e in group]


def hint_reward(episode: Episode, earned: Mapping[int, Sequence[float]]) -> float:
    """Mean of what the solutions earned that read this hint; 0 without one, and for an episode that wrote no hint."""
    rewards = earned.get(episode.info["hint"], ()) if episode.role == PROPOSER else ()
    return sum(rewards) / len(rewards) if rewards else 0.0


@dataclass(frozen=True)
class AbstractionAdvantage(Annotator):
    """Advantages of RLAD: hints against the hints of their problem, solutions against those with the same hint.

    A hint's is r - mean (REINFORCE with a baseline), a solution's (r - mean) / (std + epsilon) as in GRPO, with the
    population standard deviation. Less the accuracy without hints, a number of the whole problem, the rewards of hints
    would have the same advantages.

    Args:
        epsilon: added to the standard deviation.
    """

    epsilon: float = 1e-4

    def __post_init__(self) -> None:
        check_at_least(0, "abstraction_advantage", epsilon=self.epsilon)

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask", "abstraction"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        entry, reward, group, abstraction = batch.per_episode("episode_reward", "group", "abstraction")
        _, compared = torch.stack([group, abstraction], 1).unique(dim=0, return_inverse=True)  # [E]
        centred = group_advantage(reward.float(), compared, "mean", None)
        normalised = group_advantage(reward.float(), compared, "mean", "std", self.epsilon)
        advantage = torch.where(abstraction == -1, centred, normalised)  # [E]
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[entry][:, None], 0.0))


def budget_accuracy(right: Sequence[int], n: int, m: int, k: int) -> float:
    """Estimate without bias the probability that m hints with k solutions each include a right solution.

    Of M hints with n solutions each, of which right_j are right, m different ones are drawn, and k solutions of each:
    1 - e_m(q) / C(M, m), q_j = C(n - right_j, k) / C(n, k), with e_m the elementary symmetric polynomial. One hint
    gives pass@k.
    """
    if not (1 <= m <= len(right) and 1 <= k <= n and all(0 <= c <= n for c in right)):
        raise ValueError(f"need 1 <= m <= {len(right)} hints and 1 <= k <= {n} solutions, got m={m}, k={k}")
    symmetric = [1.0] + [0.0] * m  # e_0 .. e_m of the hints so far
    for count in right:
        wrong = comb(n - count, k) / comb(n, k)
        for size in range(m, 0, -1):
            symmetric[size] += wrong * symmetric[size - 1]
    return 1 - symmetric[m] / comb(len(right), m)


@dataclass(frozen=True)
class BudgetAccuracy(Evaluator):
    """Mean over problems of `budget_accuracy` for each (m, k): MxK, where M K solutions are the budget.

    `problems` is the number of problems whose hints all have equally many finished solutions, of which the means are;
    `errors` that of the episodes that failed.

    Args:
        budgets: pairs of a number of hints and a number of solutions of each.
        score_name: score that is 1 where a solution is right and 0 where not.
    """

    budgets: Sequence[Sequence[int]] = ((1, 1),)
    score_name: str = "exact"

    def __post_init__(self) -> None:
        if not self.budgets or not all(len(pair) == 2 and min(pair) >= 1 for pair in self.budgets):
            raise ValueError(
                f"budgets must be pairs of a number of hints and a number of solutions, got {list(self.budgets)}"
            )

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        solvers = [e for e in drop_errors(episodes) if e.role == SOLVER]
        tables = [table for group in group_episodes(solvers).values() if (table := self._count(group))]
        means = {}
        for m, k in self.budgets:
            values = [budget_accuracy(right, n, m, k) for right, n in tables if m <= len(right) and k <= n]
            means[f"{m}x{k}"] = sum(values) / len(values) if values else nan
        return {**means, "problems": float(len(tables)), "errors": count_errors(episodes)}

    def _count(self, group: Sequence[Episode]) -> tuple[list[int], int] | None:
        """Right solutions of each hint, and how many each has; None where they differ in number."""
        hints = Counter(e.info["hint"] for e in group)
        right = Counter(e.info["hint"] for e in group if get_binary_score(e, self.score_name) == 1)
        return ([right[hint] for hint in hints], min(hints.values())) if len(set(hints.values())) == 1 else None
