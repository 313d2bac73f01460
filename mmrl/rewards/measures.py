"""Measures of texts and rankings: chrF, similarity of sequences, NDCG, pairs in the right order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from difflib import SequenceMatcher


def chrf(text: str, reference: str, order: int = 6, beta: float = 2.0) -> float:
    """chrF in [0, 1]: F-score of character n-grams, the mean over n = 1 to `order`, without spaces.

    F = (1 + beta^2) P R / (beta^2 P + R), with P and R the means over n of precision and recall of the n-grams; an n
    for which both texts have none is left out.
    Source: Popovic, "chrF: character n-gram F-score for automatic MT evaluation", WMT 2015, equation 1.
    """
    texts = ["".join(each.split()) for each in (text, reference)]
    precisions, recalls = [], []
    for n in range(1, order + 1):
        grams = [Counter(each[i : i + n] for i in range(len(each) - n + 1)) for each in texts]
        text_count, reference_count = (counts.total() for counts in grams)
        if text_count == reference_count == 0:
            continue
        shared = (grams[0] & grams[1]).total()
        precisions.append(shared / max(text_count, 1))
        recalls.append(shared / max(reference_count, 1))
    if not any(precisions):
        return 0.0
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def sequence_similarity(text: str, reference: str) -> float:
    """Ratio 2 M / T of difflib's matcher without its shortcut for long texts; 1 for two empty texts.

    M are the characters of the matching blocks, T those of both texts. SWE-RL compares patches with it.
    Source: Wei et al., "SWE-RL", arXiv 2502.18449, equation 1.
    """
    return SequenceMatcher(None, text, reference, autojunk=False).ratio()


def ndcg(ranking: Sequence[Hashable], gains: Mapping[Hashable, float]) -> float:
    """Normalised discounted cumulative gain: sum_k gain_k / log2(k + 2), as a share of that of the best ranking.

    Items without a gain count 0. 0 where no gain is positive.
    Source: Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", 2002.
    """
    best = sum(gain / math.log2(k + 2) for k, gain in enumerate(sorted(gains.values(), reverse=True)))
    dcg = sum(gains.get(item, 0.0) / math.log2(k + 2) for k, item in enumerate(ranking))
    return dcg / best if best > 0 else 0.0


def ordered_pairs(ranking: Sequence[Hashable], right: Sequence[Hashable]) -> float:
    """Share of the pairs of `right` that the ranking has in the same order: (1 + Kendall's tau) / 2 of permutations."""
    place = {item: k for k, item in enumerate(ranking)}
    pairs = [(a, b) for i, a in enumerate(right) for b in right[i + 1 :]]
    if not pairs:
        return 1.0
    return sum(a in place and b in place and place[a] < place[b] for a, b in pairs) / len(pairs)


def kendall_tau(scores: Sequence[float], reference: Sequence[float]) -> float:
    """Kendall's tau-b: (C - D) / sqrt((P - T_s)(P - T_r)), pairs in equal and in opposite order, with P pairs in all.

    T are the pairs with equal numbers in one list. 0 where all numbers of a list are equal.
    Source: Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945.
    """
    signs = [
        (_sign(scores[i] - scores[j]), _sign(reference[i] - reference[j]))
        for i in range(len(scores))
        for j in range(i + 1, len(scores))
    ]
    agreement = sum(a * b for a, b in signs)
    untied = sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs)
    return agreement / math.sqrt(untied) if untied else 0.0


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
