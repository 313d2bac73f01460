"""RLBFF: principles with a yes or a no, extracted from written feedback, for a reward model that is asked about one.

RLBFF: Binary Flexible Feedback to Bridge Between Human Feedback and Verifiable Rewards, 2025, arXiv:2509.21319.

- a language model lists principles of one annotator's feedback, each with a verdict and a quote: `read_extractions`
- left out: quotes that are not in the feedback, partial verdicts, and helpfulness: `partial_ratio`, `select_grounded`
- kept: principles that every other annotator of the sample names as well: `select_agreed`, `drop_duplicates`
- questions to the reward model, "principle response?", with the right word: `FeedbackDemonstrations`
- its score, log p(yes) - log p(no), as the reward of GRPO: `mmrl.rewards.judges.pointwise.YesNo`
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmrl.core.errors import ConfigError, check_at_least, check_fraction, check_interval
from mmrl.core.types import Context, Episode, Prompt, Request, Sampling, Turn
from mmrl.distributed import parallel
from mmrl.rollouts.base import Rollout, turn_seed
from mmrl.rollouts.offline.demonstrations import demonstration

YES, NO, PARTIAL = "y", "n", "p"
"""Verdicts of an extraction."""


@dataclass(frozen=True)
class Extraction:
    """A principle of a feedback, whether the response satisfies it, and the words of the feedback that say so."""

    principle: str
    verdict: str
    quote: str


def read_extractions(text: str) -> list[Extraction]:
    """Read "many b|y|full of b;short|n|too long": principle, verdict and quote; what is malformed is left out."""
    parts = [item.split("|") for item in text.strip().split(";")]
    return [
        Extraction(*(each.strip() for each in part))
        for part in parts
        if len(part) == 3 and part[0].strip() and part[1].strip() in (YES, NO, PARTIAL)
    ]


def partial_ratio(quote: str, text: str) -> float:
    """Best match of the quote with a part of the text of at most its length, from 0 to 100: 200 LCS / (|a| + |b|).

    LCS is the length of the longest common subsequence. It is `partial_ratio` of the library RapidFuzz for a quote that
    is not longer than the text; parts at the ends of the text may be shorter.
    """
    if len(quote) > len(text):
        quote, text = text, quote
    if not quote:
        return 0.0
    size = len(quote)
    starts = range(1 - size, len(text))
    return max(_similarity(quote, text[max(start, 0) : start + size]) for start in starts)


def _similarity(one: str, other: str) -> float:
    row = [0] * (len(other) + 1)  # of the longest common subsequence, of the letters of `one` so far
    for letter in one:
        before = row
        row = [0]
        for j, each in enumerate(other):
            row.append(before[j] + 1 if letter == each else max(before[j + 1], row[j]))
    return 200 * row[-1] / (len(one) + len(other))


def select_grounded(
    extractions: Sequence[Extraction], feedback: str, least: float = 60.0, excluded: Sequence[str] = ("helpful",)
) -> list[Extraction]:
    """Extractions with a verdict of yes or no whose quote is in the feedback, without excluded principles.

    Source: RLBFF, 2025, arXiv:2509.21319: a match above 60 of 100; partial verdicts and helpfulness are left out.
    """
    return [
        each
        for each in extractions
        if each.verdict != PARTIAL and each.principle not in excluded and partial_ratio(each.quote, feedback) > least
    ]


def embed_trigrams(text: str) -> Counter[str]:
    """Counts of the character trigrams of a text between blanks, as a sparse embedding."""
    padded = f"  {text} "
    return Counter(padded[i : i + 3] for i in range(len(padded) - 2))


def trigram_cosine(one: str, other: str) -> float:
    """Cosine of the trigram embeddings of two texts, in [0, 1]."""
    a, b = embed_trigrams(one), embed_trigrams(other)
    norms = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return sum(count * b[gram] for gram, count in a.items()) / norms


def select_agreed(
    by_annotator: Sequence[Sequence[Extraction]],
    least: float = 0.8,
    similarity: Callable[[str, str], float] = trigram_cosine,
) -> list[Extraction]:
    """Extractions for which every other annotator of the sample has a principle with a cosine above `least`.

    A single annotator has no consensus. Source: RLBFF, 2025, arXiv:2509.21319: 0.8; 0.7 and 0.9 were worse.

    Args:
        by_annotator: of one response, the extractions from each annotator's feedback.
        least: cosine of two principles that mean the same.
        similarity: cosine of two principles.
    """
    agreed = []
    for i, extractions in enumerate(by_annotator):
        others = [each for j, each in enumerate(by_annotator) if j != i]
        for extraction in extractions:
            best = [
                max((similarity(extraction.principle, e.principle) for e in other), default=0.0) for other in others
            ]
            if best and min(best) > least:
                agreed.append(extraction)
    return agreed


def drop_duplicates(
    extractions: Sequence[Extraction],
    least: float = 0.8,
    similarity: Callable[[str, str], float] = trigram_cosine,
) -> list[Extraction]:
    """The first of extractions with the same principle; none of them where their verdicts differ."""
    clusters: list[list[Extraction]] = []
    for each in extractions:
        same = next((c for c in clusters if similarity(c[0].principle, each.principle) > least), None)
        if same is None:
            clusters.append([each])
        else:
            same.append(each)
    return [cluster[0] for cluster in clusters if len({each.verdict for each in cluster}) == 1]


class FeedbackDemonstrations(Rollout):
    """Demonstrations for a reward model: questions about principles that a frozen model extracts from feedback.

    Each prompt has a response and the feedback of its annotators. The model reads one feedback at a time, greedily; the
    prompt becomes one question for each principle that is kept, and the right word is its verdict. Source: RLBFF, 2025,
    arXiv:2509.21319.

    Args:
        extractor: name of the model in `model.frozen_models`.
        template: question about a {principle} and a {response}.
        least_match: of a quote with the feedback, from 0 to 100.
        least_cosine: of two principles that mean the same.
        excluded: principles that are left out.
        max_tokens: of the list of principles of one feedback.
        feedback: entry of `Prompt.info` with the texts of the annotators, as the extractor reads them.
        response: entry of `Prompt.info` with the response.
    """

    samples = False

    def __init__(
        self,
        extractor: str = "extractor",
        template: str = "{principle} {response}?",
        least_match: float = 60.0,
        least_cosine: float = 0.8,
        excluded: Sequence[str] = ("helpful",),
        max_tokens: int = 256,
        feedback: str = "feedback",
        response: str = "response",
    ):
        check_interval("rollout", "[0, 100]", least_match=least_match)
        check_fraction("rollout", least_cosine=least_cosine)
        check_at_least(1, "rollout", max_tokens=max_tokens)
        if "{principle}" not in template or "{response}" not in template:
            raise ConfigError(f"rollout.template must have {{principle}} and {{response}}, got {template!r}")
        self.extractor, self.template, self.max_tokens = extractor, template, max_tokens
        self.least_match, self.least_cosine, self.excluded = least_match, least_cosine, tuple(excluded)
        self.feedback, self.response = feedback, response
        self._counts: Counter[str] = Counter()  # of the last collection

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.extractor})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        texts = [(slot, text) for slot, prompt in prompts for text in self._texts(prompt)]
        requests = [
            Request({"messages": ({"role": "user", "content": text},)}, turn_seed(slot, i, ctx), model=self.extractor)
            for i, (slot, text) in enumerate(texts)
        ]
        sampling = Sampling(decode="argmax", max_tokens=self.max_tokens)
        replies = ctx.engine.sample(requests, sampling) if requests else []
        self._counts = Counter()
        by_slot: dict[int, list[list[Extraction]]] = {slot: [] for slot, _ in prompts}
        for (slot, text), done in zip(texts, replies):
            extractions = read_extractions(str(done.output))
            grounded = select_grounded(extractions, text, self.least_match, self.excluded)
            self._counts.update(extracted=len(extractions), grounded=len(grounded))
            by_slot[slot].append(grounded)
        return [episode for slot, prompt in prompts for episode in self._ask(slot, prompt, by_slot[slot], ctx)]

    def metrics(self) -> dict[str, float]:
        """Principles of the last collection over all ranks: extracted, in the feedback, agreed on, distinct."""
        names = ("extracted", "grounded", "agreed", "distinct")
        counts = parallel.gather([[self._counts[name] for name in names]])
        return {f"rollout/principles_{name}": float(sum(column)) for name, column in zip(names, zip(*counts))}

    def _texts(self, prompt: Prompt) -> Sequence[str]:
        texts = prompt.info.get(self.feedback)
        if not isinstance(texts, list | tuple) or self.response not in prompt.info:
            raise ConfigError(
                f"rollout reads a response and its feedback from Prompt.info, {self.response!r} and {self.feedback!r}, "
                f"and {prompt.place or prompt.key} has {sorted(prompt.info)}; take task=feedback, or set "
                "rollout.feedback and rollout.response"
            )
        return texts

    def _ask(
        self, slot: int, prompt: Prompt, by_annotator: Sequence[Sequence[Extraction]], ctx: Context
    ) -> list[Episode]:
        """One demonstration for each principle of a response that is kept."""
        agreed = select_agreed(by_annotator, self.least_cosine)
        distinct = drop_duplicates(agreed, self.least_cosine)
        self._counts.update(agreed=len(agreed), distinct=len(distinct))
        episodes = []
        for i, each in enumerate(distinct):
            question = self.template.format(principle=each.principle, response=prompt.info[self.response])
            info = {**prompt.info, "principle": each.principle}
            asked = Prompt(prompt.key, ({"role": "user", "content": question},), answer=each.verdict, info=info)
            turn = Turn(demonstration(asked.observation, each.verdict, ctx))
            episodes.append(Episode(asked, slot, i, [turn], source="demo"))
        return episodes
