"""Priors over skills of LLM Augmented Hierarchical Agents: which skill makes sense in a state, which is given in words.

LLM Augmented Hierarchical Agents, 2023, arXiv:2311.05596.

- floor of a prior: `floor_prior`
- the right skill with a share of wrong answers: `ScriptedPrior`
- a language model's probabilities of the skills' names: `ModelPrior`
- a prior that is asked once for each state: `CachedPrior`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from mmrl.core.errors import check_fraction, check_interval, check_positive
from mmrl.core.rng import derive_rng
from mmrl.policies.text.actions.action_scorer import ActionScorer

QUESTION = "A player of a crafting game asks what to do next. {state}\nAnswer with the next action alone."


def floor_prior(
    prior: np.ndarray,  # [K]
    epsilon: float,
) -> np.ndarray:  # [K]
    """max(p, epsilon), normalised: a skill that a prior excludes can still be explored."""
    raised = np.maximum(prior, epsilon)
    return raised / raised.sum()


@runtime_checkable
class SkillPrior(Protocol):
    """Says how probable it is that each skill makes sense."""

    def rate(self, state: str, skills: Sequence[str], expert: int) -> np.ndarray:
        """Probabilities [K] of K skills.

        Args:
            state: the state and the task in words.
            skills: in words.
            expert: number of the right skill, for scripts that know it.
        """


class ScriptedPrior:
    """The right skill has probability `confidence`, the others share the rest; in some states another is taken for it.

    Which states these are, and which skill is favoured there, are functions of the seed and of the state in words.

    Args:
        wrong: probability that the prior is wrong about a state.
        confidence: probability of the skill that is taken for the right one.
        seed: of what is wrong.
    """

    def __init__(self, wrong: float = 0.2, confidence: float = 0.5, seed: int = 0):
        check_fraction("rollout.prior", wrong=wrong, confidence=confidence)
        self.wrong, self.confidence, self.seed = wrong, confidence, seed

    def rate(self, state: str, skills: Sequence[str], expert: int) -> np.ndarray:
        rng, count = derive_rng("scripted prior", self.seed, state), len(skills)
        favourite = expert
        if count > 1 and rng.random() < self.wrong:
            favourite = (expert + 1 + int(rng.integers(count - 1))) % count
        prior = np.full(count, (1 - self.confidence) / max(count - 1, 1))
        prior[favourite] = self.confidence if count > 1 else 1.0
        return prior


class ModelPrior:
    """A causal language model of transformers scores the skills' names as answers to a question with the state.

    p(k) = softmax_k(l_k / temperature), with l_k the sum or the mean of the log-probabilities of the tokens of name k
    (`ActionScorer`). The model is frozen and no part of the policy.

    Args:
        path: hub id or folder of the model with its tokenizer.
        question: with {state} where the state in words stands.
        temperature: above 1 the prior is flatter.
        options: further arguments of `ActionScorer`, such as `reduction` or `dtype`.
    """

    def __init__(self, path: str, question: str = QUESTION, temperature: float = 1.0, **options: Any):
        check_positive("rollout.prior", temperature=temperature)
        if "{state}" not in question:
            raise ValueError(f"rollout.prior.question must have {{state}} where the state stands, got {question!r}")
        self.question, self.temperature = question, temperature
        self.path, self.options = path, options
        self._scorer: ActionScorer | None = None  # loaded when it is first asked

    @torch.no_grad()
    def rate(self, state: str, skills: Sequence[str], expert: int) -> np.ndarray:
        if self._scorer is None:
            self._scorer = ActionScorer(self.path, **{"reduction": "mean", **self.options}).eval()
        messages = [{"role": "user", "content": self.question.replace("{state}", state)}]
        encoded = self._scorer.encode({"messages": messages, "admissible_actions": list(skills)})
        logits, _ = self._scorer.score(self._scorer.collate([encoded]))
        return (logits[0].double() / self.temperature).softmax(-1).numpy()


class CachedPrior:
    """Asks a prior once for each state in words, and floors what it says.

    Args:
        prior: None for none: all skills are equally probable.
        epsilon: least probability of a skill before all are normalised.
        weight: lambda, the exponent of the prior in the behaviour policy.
    """

    def __init__(self, prior: SkillPrior | None, epsilon: float, weight: float):
        check_interval("rollout", "(0, 1]", epsilon=epsilon)
        check_fraction("rollout", weight=weight)
        self.prior, self.epsilon, self.weight = prior, epsilon, weight
        self.states: dict[str, np.ndarray] = {}

    def __call__(self, state: str, skills: Sequence[str], expert: int) -> np.ndarray:
        """Log-probabilities float32 [K] of the skills; 0 without a prior.

        Raises:
            ValueError: what the prior gave are no K probabilities.
        """
        if self.prior is None:
            return np.zeros(len(skills), np.float32)
        if state not in self.states:
            prior = np.asarray(self.prior.rate(state, skills, expert), np.float64)
            if prior.shape != (len(skills),) or not (prior >= 0).all() or not 0.999 < prior.sum() < 1.001:
                raise ValueError(
                    f"rollout.prior gave {prior.tolist()} for {len(skills)} skills in the state {state!r}; it must "
                    "give one probability for each, which sum to 1"
                )
            self.states[state] = np.log(floor_prior(prior, self.epsilon)).astype(np.float32)
        return self.states[state]
