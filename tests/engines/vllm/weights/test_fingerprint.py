"""Two float64 sums, and how far rounding alone can move them."""

import pytest
import torch

from mmrl.engines.vllm.backend import EngineFailure, EngineWeights, HeldTensor
from mmrl.engines.vllm.weights.fingerprint import PIECE, fingerprint, rounding
from mmrl.engines.vllm.weights.sent_weights import SentWeights
from mmrl.engines.vllm.weights.verification import verify_weights


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


def test_the_decay_of_a_state_space_layer_is_what_vllm_makes_of_its_logarithm():
    """vLLM holds A = -exp(A_log), here -1, -2, -3, -4: sum -10, sum of squares 30; a lost update is noticed."""
    sent = SentWeights({"mixer.A_log": torch.tensor([1.0, 2.0, 3.0, 4.0]).log()})
    recorded = SentWeights()
    recorded.record({"mixer.A_log": torch.tensor([1.0, 2.0, 3.0, 4.0]).log()}, ["float32"])

    def verify(weights, total, squares, name="mixer.A"):
        engine_weights = EngineWeights(1, {name: HeldTensor(total, squares, 4, "float32")}, {name: ("mixer.A_log",)})
        verify_weights(weights, engine_weights, 1)

    for weights in (sent, recorded, sent.fix(["float32"])):
        verify(weights, -10.0, 30.0)
        verify(weights, -10.000001, 30.000002)  # the last bit of an exponential
        with pytest.raises(EngineFailure, match=r"mixer\.A, made of mixer\.A_log, has sum -10\.001"):
            verify(weights, -10.001, 30.0)
        with pytest.raises(EngineFailure, match=r"sum of squares 30\.01"):
            verify(weights, -10.0, 30.01)
        logarithms = fingerprint(torch.tensor([1.0, 2.0, 3.0, 4.0]).log())
        verify(weights, *logarithms, name="mixer.A_log")  # where the engine holds the logarithm itself
        with pytest.raises(EngineFailure, match="weights did not reach"):
            verify(weights, *logarithms)
