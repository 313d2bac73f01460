"""Two float64 sums, and how far rounding alone can move them."""

import torch

from mmrl.engines.vllm.weights.fingerprint import PIECE, fingerprint, rounding


def test_the_sums_are_exact_to_the_stated_rounding():
    x = torch.randn(PIECE + 1000, generator=torch.Generator().manual_seed(0)) * 0.02
    got = fingerprint(x)
    shuffled = fingerprint(x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))])
    for a, b, most in zip(got, shuffled, rounding(len(x), got[1])):
        assert abs(a - b) <= most
    x[12345] += 1e-5
    changed = fingerprint(x)
    assert abs(changed[0] - got[0]) > rounding(len(x), got[1])[0]


def test_small_ones():
    assert fingerprint(torch.empty(0)) == (0.0, 0.0)
    assert fingerprint(torch.tensor([[1.0, -3.0]], dtype=torch.bfloat16)) == (-2.0, 10.0)
