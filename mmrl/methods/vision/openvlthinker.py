"""OpenVLThinker: rounds of SFT of the base model on correct traces of an RL policy, then RL on harder problems.

OpenVLThinker: Complex Vision-Language Reasoning via Iterative SFT-RL Cycles, 2025, arXiv:2503.17352.

- accuracy, halved where nothing explains the answer: `explained_accuracy`
- traces of the RL policy of the round before, as demonstrations: `SolverTraces`
- correct, short and not repetitive ones: `SelectTraces`
- rounds: warm-start stages of recipes that name each other
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.rewards.extract import Tags, remove_thoughts
from mmrl.rewards.shaping import repeated_ngrams
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.base import EpisodeTransform


def explained_accuracy(completion: str, answer: object) -> float:
    """1 for the correct answer, 0.5 if no text is between the end of the thought and the answer's tag, else 0.

    The answer is the content of the last pair of answer tags; without one the whole completion is, which has no place
    for an explanation and loses nothing. Source: OpenVLThinker, 2025, arXiv:2503.17352, and the reward of its released
    code, yihedeng9/OpenVLThinker.
    """
    tag_text = Tags()(completion)
    if (completion.strip() if tag_text is None else tag_text) != str(answer).strip():
        return 0.0
    explanation = (remove_thoughts(completion) or "").rpartition("<answer>")[0]
    return 1.0 if tag_text is None or explanation.strip() else 0.5


class SolverTraces(Rollout):
    """Completions of a frozen model, the RL policy of the round before, as demonstrations for the policy.

    A completion is read as text, so that the models may have different tokenizers. Source: OpenVLThinker, 2025,
    arXiv:2503.17352.

    Args:
        solver: name of the model in `model.frozen_models`.
    """

    samples = False

    def __init__(self, solver: str = "solver"):
        self.solver = solver

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.solver})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        entries = [(slot, prompt, index) for slot, prompt in prompts for index in ctx.sample_indices(slot)]
        requests = [
            Request(text_observation(prompt), derive_seed(self.solver, turn_seed(slot, index, ctx)), model=self.solver)
            for slot, prompt, index in entries
        ]
        out = []
        for (slot, prompt, index), done in zip(entries, ctx.engine.sample(requests, ctx.sampling) if requests else []):
            completion = replace(demonstration(prompt.observation, done.output, ctx), ended=done.ended, prompt_id=slot)
            out.append(Episode(prompt, slot, index, [Turn(completion)], ended=done.ended, source="demo"))
        return out


@dataclass(frozen=True)
class SelectTraces(EpisodeTransform):
    """Keeps of each prompt the first correct completions that are short and not repetitive.

    A prompt without one has no demonstration. Source: OpenVLThinker, 2025, filter of the traces for SFT,
    arXiv:2503.17352; the bounds are ours.

    Args:
        count: most completions of a prompt.
        max_tokens: longest completion.
        ngram: words whose repetition is counted.
        max_repeated: largest share of n-grams that occurred before.
        success_threshold: smallest reward of a correct completion.
    """

    count: int = 1
    max_tokens: int = 2048
    ngram: int = 4
    max_repeated: float = 0.2
    success_threshold: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(1, "select_traces", count=self.count, max_tokens=self.max_tokens)
        check_fraction("select_traces", max_repeated=self.max_repeated)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes).values()
        return [episode for group in groups for episode in [e for e in group if self._accepts(e)][: self.count]]

    def _accepts(self, episode: Episode) -> bool:
        short = episode.tokens <= self.max_tokens
        repeated = repeated_ngrams(str(episode.output), self.ngram, 1.0)
        return short and episode.reward >= self.success_threshold and repeated <= self.max_repeated
