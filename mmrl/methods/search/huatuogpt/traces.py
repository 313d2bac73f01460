"""HuatuoGPT-o1: search for a right chain by strategies of revision, imitate it as one thought, then PPO on a verifier.

HuatuoGPT-o1, Towards Medical Complex Reasoning with LLMs, 2024, arXiv:2412.18925.

- attempts until a verifier is content, each by a strategy: a new path, backtracking, verification, correction; all of
  them joined into one thought and a final response: `write_trace`, `SearchedTraces`
- demonstrations of revisions for the model that searches: `RevisionDemonstrations`
- the reward of PPO, 1 where the verifier's p exceeds 0.4, 0.1 where not, 0 without the two headings: `coarse_reward`,
  of a learned verifier in `mmrl.methods.search.huatuogpt.verifier`
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Turn
from mmrl.distributed import parallel
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.offline.demonstrations import Demonstrations, demonstration

THINKING, RESPONSE = "## Thinking", "## Final Response"
"""Headings of a reply, each exactly once and in this order."""
STRATEGIES = {
    "new_path": "Another way.",
    "backtrack": "Back to an earlier step.",
    "verify": "Let me check.",
    "correct": "That is wrong.",
}
"""Strategies of a revision, with the words that begin it in a thought."""


def read_response(text: str) -> str | None:
    """The final response of a reply; None unless each heading is there exactly once, on a line, in the right order."""
    parts = re.split(rf"^({re.escape(THINKING)}|{re.escape(RESPONSE)})[ \t]*$", text, flags=re.MULTILINE)
    return parts[4].strip() if parts[1::2] == [THINKING, RESPONSE] else None


def coarse_reward(p: float | None, threshold: float = 0.4, right: float = 1.0, wrong: float = 0.1) -> float:
    """Reward of a reply whose response is right with probability p by the verifier; 0 for one without the form, None.

    Source: HuatuoGPT-o1, 2024, section 3, arXiv:2412.18925, and its released code (ppo_utils): 1.0 for p > 0.4.
    """
    if p is None:
        return 0.0
    return right if p > threshold else wrong


@dataclass(frozen=True)
class ChainAttempt:
    """A chain of reasoning, and the strategy that led to it; "" for the first one."""

    strategy: str
    text: str


def write_context(question: str, attempts: Sequence[ChainAttempt], strategy: str) -> str:
    """What the searching model reads: the question, and after attempts these and the words of the next strategy."""
    return f"{question}\n{write_thought(attempts)}\n{STRATEGIES[strategy]}\n" if attempts else question


def write_thought(attempts: Sequence[ChainAttempt]) -> str:
    """Join attempts into one thought, each revision after the words of its strategy."""
    return "\n".join(f"{STRATEGIES[a.strategy]}\n{a.text}" if a.strategy else a.text for a in attempts)


def write_trace(attempts: Sequence[ChainAttempt]) -> str:
    """Write a searched chain: all attempts as the thought, and the last line of the last one as the response."""
    response = attempts[-1].text.strip().split("\n")[-1]
    return f"{THINKING}\n{write_thought(attempts)}\n{RESPONSE}\n{response}"


def choose_strategy(revision: int, draw: float) -> str:
    """The strategy of a revision, uniform over those that apply; backtracking needs an earlier revision.

    Args:
        revision: its number, from 0.
        draw: uniform in [0, 1).
    """
    choices = [name for name in STRATEGIES if revision > 0 or name != "backtrack"]
    return choices[int(draw * len(choices))]


class SearchedTraces(Rollout):
    """Demonstrations that a frozen model finds by search: right chains with the revisions that led to them.

    Attempts of a prompt are sampled until the task calls one right; after `depth` revisions the search begins again, at
    most `restarts` times. A prompt without a right attempt has no demonstration.
    Source: HuatuoGPT-o1, 2024, section 2, arXiv:2412.18925: 3 revisions, 3 searches.

    Args:
        searcher: name of the model in `model.frozen_models`.
        depth: revisions of one search.
        restarts: searches of a prompt.
        score_name: of the task, 1 for a right attempt.
    """

    samples = False

    def __init__(self, searcher: str = "searcher", depth: int = 3, restarts: int = 3, score_name: str = "exact"):
        check_at_least(0, "rollout", depth=depth)
        check_at_least(1, "rollout", restarts=restarts)
        self.searcher, self.depth, self.restarts, self.score_name = searcher, depth, restarts, score_name
        self._counts: Counter[str] = Counter()  # of the last collection

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.searcher})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        self._counts = Counter(prompts=len(prompts))
        attempts: dict[int, list[ChainAttempt]] = {slot: [] for slot, _ in prompts}
        solved: dict[int, list[ChainAttempt]] = {}
        for trial in range(self.restarts * (self.depth + 1)):
            if trial % (self.depth + 1) == 0:  # a new search
                attempts = {slot: [] for slot, _ in prompts}
            open_prompts = [(slot, prompt) for slot, prompt in prompts if slot not in solved]
            for (slot, prompt), (attempt, done) in zip(open_prompts, self._try(open_prompts, attempts, trial, ctx)):
                attempts[slot].append(attempt)
                if ctx.task.score(Episode(prompt, slot, 0, [Turn(done)]))[self.score_name] == 1:
                    solved[slot] = list(attempts[slot])
        self._counts.update(solved=len(solved), revisions=sum(len(each) - 1 for each in solved.values()))
        return [
            Episode(
                prompt, slot, 0, [Turn(demonstration(prompt.observation, write_trace(solved[slot]), ctx))],
                source="demo",
            )
            for slot, prompt in prompts
            if slot in solved
        ]  # fmt: skip

    def _try(
        self,
        prompts: Sequence[tuple[int, Prompt]],
        attempts: Mapping[int, Sequence[ChainAttempt]],
        trial: int,
        ctx: Context,
    ) -> list[tuple[ChainAttempt, Completion]]:
        """One more attempt at each prompt."""
        strategies, requests = [], []
        for slot, prompt in prompts:
            rng = derive_rng("searched_traces", ctx.seed, ctx.purpose, ctx.iteration, slot, trial)
            strategy = choose_strategy(len(attempts[slot]) - 1, rng.random()) if attempts[slot] else ""
            raw = text_observation(prompt)
            *before, last = raw["messages"]
            content = write_context(last["content"], attempts[slot], strategy) if strategy else last["content"]
            observation = {**raw, "messages": (*before, {**last, "content": content})}
            strategies.append(strategy)
            requests.append(Request(observation, turn_seed(slot, trial, ctx), model=self.searcher))
        completions = ctx.engine.sample(requests, ctx.sampling) if requests else []
        return [(ChainAttempt(name, str(done.output)), done) for name, done in zip(strategies, completions)]

    def metrics(self) -> dict[str, float]:
        """Prompts of the last collection over all ranks, those that were solved, and the revisions of these."""
        names = ("prompts", "solved", "revisions")
        counts = parallel.gather([[self._counts[name] for name in names]])
        return {f"rollout/search_{name}": float(sum(column)) for name, column in zip(names, zip(*counts))}


class RevisionDemonstrations(Demonstrations):
    """The task's own answers, some after a wrong attempt and the words of a strategy: what a searching model learns.

    It stands in for a model that follows such words without training. A wrong attempt is the task's answer to another
    problem.

    Args:
        revised: share of the demonstrations after a wrong attempt.
        cache_episodes: keep the encoded demonstrations in memory, as they were first drawn.
    """

    def __init__(self, revised: float = 0.5, cache_episodes: bool = False):
        super().__init__(cache_episodes)
        check_fraction("rollout", revised=revised)
        self.revised = revised

    def encode(self, raw: Mapping[str, Any], output: Any, ctx: Context) -> Completion:
        *before, last = raw["messages"]
        rng = derive_rng("revision_demonstrations", ctx.seed, ctx.purpose, ctx.iteration, last["content"])
        if rng.random() < self.revised:
            other = ctx.task[int(rng.integers(len(ctx.task)))]
            wrong = [ChainAttempt("", str(ctx.task.demonstrations([other])[0][0][1]))]
            content = write_context(last["content"], wrong, choose_strategy(0, rng.random()))
            raw = {**raw, "messages": (*before, {**last, "content": content})}
        return super().encode(raw, output, ctx)
