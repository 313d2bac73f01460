"""RLP: reward a thought by the gain in log-probability of the next token of raw text.

RLP: Reinforcement as a Pretraining Objective, 2025, arXiv:2510.01265.

- log p(token | text, thought) - log p_ema(token | text): `InformationGain`
- the slow copy of the policy: `mmrl.callbacks.snapshots.ReferenceEMA`; advantages are leave-one-out
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.answer_splice import Splice, answer_probabilities, reference_answer
from mmrl.transforms.base import EpisodeTransform


def information_gain(
    thought: Tensor,  # [L] probabilities after the thought
    baseline: Tensor,  # [L] probabilities without it
    tokens: int = 1,
) -> float:
    """Sum over the first tokens of log p(token | text, thought) - log p(token | text), in nats.

    Source: RLP, 2025, equation 4, arXiv:2510.01265.
    """
    floor = 1e-30  # a probability that rounds to 0
    gain = thought[:tokens].clamp(min=floor).log() - baseline[:tokens].clamp(min=floor).log()
    return float(gain.sum())


@dataclass(frozen=True)
class InformationGain(EpisodeTransform):
    """Replaces the reward by the gain in log-probability of the next tokens of the text after a thought.

    The prompt is the text so far, the completion the thought, and the prompt's answer the text that follows. The policy
    scores its first tokens after text, thought and separator; a slow copy of it scores them after the text alone. Both
    are teacher-forced, without gradient. Score `information_gain` is the same, in nats.

    Source: RLP, 2025, section 2, arXiv:2510.01265.

    Args:
        model: the slow copy, "reference" of model.reference=true.
        tokens: of the answer.
        separator: text between thought and answer.
        rows: per forward pass.
    """

    model: str = "reference"
    tokens: int = 1
    separator: str = ""
    rows: int = 64

    def __post_init__(self) -> None:
        check_at_least(1, "information_gain", tokens=self.tokens, rows=self.rows)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        prompts = {slot: group[0].prompt for slot, group in group_episodes(episodes).items()}
        answers = {slot: reference_answer(prompt, "information_gain") for slot, prompt in prompts.items()}
        alone = [Splice(prompt, "", answers[slot]) for slot, prompt in prompts.items()]
        baseline = dict(zip(prompts, answer_probabilities(alone, ctx, self.rows, self.model)))
        after = [Splice(e.prompt, f"{e.output}{self.separator}", answers[e.group]) for e in episodes]
        for episode, thought in zip(episodes, answer_probabilities(after, ctx, self.rows)):
            episode.reward = information_gain(thought, baseline[episode.group], self.tokens)
            episode.scores = {**episode.scores, "information_gain": episode.reward}
        return episodes
