"""Measures of texts and rankings against numbers by hand."""

import math

import pytest

from mmrl.rewards.measures import chrf, ndcg, ordered_pairs, sequence_similarity


@pytest.mark.parametrize(
    ("text", "reference", "value"),
    [
        ("abc", "abc", 1),
        ("a b c", "abc", 1),  # spaces do not count
        ("", "abc", 0),
        ("xyz", "abc", 0),
        ("", "", 0),
        # n = 1: 2/2 and 2/3, n = 2: 1/1 and 1/2, n = 3: 0 and 0; P = 2/3, R = 7/18, F = 5 P R / (4 P + R)
        ("ab", "abc", 5 * (2 / 3) * (7 / 18) / (4 * 2 / 3 + 7 / 18)),
        # n = 1: 3/4 and 3/3, n = 2: 2/3 and 2/2, n = 3: 1/2 and 1/1, n = 4: 0/1 and 0/0
        ("abcd", "abc", 5 * (23 / 12 / 4) * (3 / 4) / (4 * 23 / 12 / 4 + 3 / 4)),
    ],
)
def test_chrf(text, reference, value):
    assert chrf(text, reference) == pytest.approx(value)


def test_similarity_of_patches():
    assert sequence_similarity("-a=1\n+a=2", "-a=1\n+a=3") == pytest.approx(8 / 9)
    assert (
        sequence_similarity("a", "a") == 1 and sequence_similarity("", "") == 1 and sequence_similarity("a", "b") == 0
    )


def test_ndcg():
    gains = {"a": 2.0, "b": 1.0, "c": 0.0}
    assert ndcg("abc", gains) == 1
    assert ndcg("bac", gains) == pytest.approx((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)))
    assert ndcg("xyz", gains) == 0 and ndcg("ab", {"a": 0.0}) == 0


@pytest.mark.parametrize(("ranking", "share"), [("abc", 1), ("cba", 0), ("bac", 2 / 3), ("ab", 1 / 3), ("", 0)])
def test_ordered_pairs(ranking, share):
    assert ordered_pairs(ranking, "abc") == pytest.approx(share)
    assert ordered_pairs("x", "x") == 1
