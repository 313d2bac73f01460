"""Rewards for format, length and repetition, beside the score of a verifier: reward=mmrl.rewards.shaping:tag_format.

They are functions of one completion with arguments by name, see `mmrl.rewards.function`. Other limits than the papers'
are set in a function of one's own that calls one of these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from mmrl.core.errors import check_at_least


def tag_format(completion: str, tags: Sequence[str] = ("think", "answer"), prompt_end: str = "") -> float:
    """1 if the completion is one pair of each tag in this order and nothing else outside of them, else 0.

    A chat template may open the first tag at the end of the prompt, `prompt_end`; the completion goes on from there.
    Source: DeepSeek-AI, "DeepSeek-R1", arXiv 2501.12948, section 2.2.2 (format rewards).
    """
    completion = prompt_end + completion
    pairs = r"\s*".join(rf"<{re.escape(tag)}>(?P<t{i}>.*?)</{re.escape(tag)}>" for i, tag in enumerate(tags))
    once = all(completion.count(f"<{tag}>") == completion.count(f"</{tag}>") == 1 for tag in tags)
    return float(once and re.fullmatch(rf"\s*{pairs}\s*", completion, re.DOTALL) is not None)


def length(num_tokens: int) -> float:
    """Number of tokens of the completion; a negative weight prefers short ones."""
    return float(num_tokens)


def overlong_penalty(num_tokens: int, max_tokens: int = 20_480, buffer: float = 4_096) -> float:
    """DAPO's soft overlong punishment: 0 up to max_tokens - buffer, then linearly down to -1 at max_tokens.

    R(L) = 0 for L <= M - B; (M - B - L) / B for M - B < L <= M; -1 for L > M, with M `max_tokens` and B `buffer`.
    Source: Yu et al., "DAPO", arXiv 2503.14476, equation 13.
    """
    if not 0 < buffer <= max_tokens:
        raise ValueError(f"overlong_penalty: buffer must be in [1, max_tokens={max_tokens}], got {buffer}")
    return max(-1.0, min(0.0, (max_tokens - buffer - num_tokens) / buffer))


def exact_within_limit(exact: float, truncated: bool) -> float:
    """Score `exact` of a completion that ended by itself; 0 for one that was cut off at sampling.max_tokens.

    Source: SIRI, 2025, truncated responses are wrong, arXiv:2509.25176.
    """
    return 0.0 if truncated else exact


def cosine_length(
    num_tokens: int,
    exact: float,
    max_tokens: int = 16_384,
    correct: tuple[float, float] = (2.0, 1.0),
    wrong: tuple[float, float] = (-10.0, 0.0),
    exceeded: float = -10.0,
) -> float:
    """Reward by length: short correct completions earn most, short wrong ones least.

    R(L) = r_M + (r_0 - r_M) (1 + cos(pi L / M)) / 2 for L < M, and `exceeded` for L >= M, with M `max_tokens` and
    (r_0, r_M) the rewards at lengths 0 and M: `correct` where exact is 1, `wrong` elsewhere.
    Source: Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs", arXiv 2502.03373, section 4.2.
    """
    if num_tokens >= max_tokens:
        return exceeded
    at_zero, at_max = correct if exact >= 1 else wrong
    return at_max + (at_zero - at_max) * (1 + math.cos(math.pi * num_tokens / max_tokens)) / 2


def repetition_penalty(completion: str, ngram: int = 40, penalty: float = -0.05) -> float:
    """Sum of the penalties of all words that are in an n-gram which occurred before: penalty * number of such words.

    The paper penalises tokens; a function sees the text, so words are counted here.
    Source: Yeo et al., arXiv 2502.03373, algorithm 1 (appendix), with N = 40 and P = -0.05.
    """
    check_at_least(1, "repetition_penalty:", ngram=ngram)
    words = completion.split()
    grams: set[tuple[str, ...]] = set()
    repeated: set[int] = set()
    for start in range(len(words) - ngram + 1):
        gram = tuple(words[start : start + ngram])
        if gram in grams:
            repeated.update(range(start, start + ngram))
        grams.add(gram)
    return penalty * len(repeated)


def kimi_length(completions: Sequence[str], num_tokens: Sequence[int], exact: Sequence[float]) -> list[float]:
    """Length reward within the completions of a prompt: 0.5 for the shortest right one, -0.5 for the longest.

    l_j = 0.5 - (L_j - min L) / (max L - min L); a right completion gets l_j, a wrong one min(0, l_j); all get 0 where
    the lengths are equal.
    Source: Kimi Team, "Kimi k1.5", arXiv 2501.12599, section 2.3.3.
    """
    least, most = min(num_tokens), max(num_tokens)
    if least == most:
        return [0.0] * len(num_tokens)
    each = [0.5 - (n - least) / (most - least) for n in num_tokens]
    return [value if right >= 1 else min(0.0, value) for value, right in zip(each, exact)]


def harmonised_length(
    completions: Sequence[str],
    num_tokens: Sequence[int],
    exact: Sequence[float],
    accuracy_weight: float = 2.0,
    bounds: tuple[float, float] = (-2.0, 4.0),
) -> list[float]:
    """Reward for being shorter than the prompt's mean completion at no less than its mean accuracy.

    w_j = mean(L) / L_j - 1 + accuracy_weight * (exact_j - mean(exact)), clipped to `bounds`. The paper takes both means
    over samples of the reference policy; here they are those of the group.
    Source: Luo et al., "O1-Pruner", arXiv 2501.12570.
    """
    if min(num_tokens) < 1:
        raise ValueError("harmonised_length: a completion has no tokens")
    mean_length, mean_exact = sum(num_tokens) / len(num_tokens), sum(exact) / len(exact)
    each = [mean_length / n - 1 + accuracy_weight * (right - mean_exact) for n, right in zip(num_tokens, exact)]
    return [min(max(value, bounds[0]), bounds[1]) for value in each]


def repeated_ngrams(completion: str, ngram: int = 20, penalty: float = -2.0) -> float:
    """`penalty` times the share of n-grams of words that occurred before; 0 for texts of fewer words.

    Source: Xiao et al., "Perception-R1", arXiv 2506.07218, with n = 20 and penalty = -2.
    """
    check_at_least(1, "repeated_ngrams:", ngram=ngram)
    words = completion.split()
    grams = [tuple(words[start : start + ngram]) for start in range(len(words) - ngram + 1)]
    return penalty * (1 - len(set(grams)) / len(grams)) if grams else 0.0
