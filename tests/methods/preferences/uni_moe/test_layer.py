"""Dynamic routing by hand and by loops over tokens and experts; a layer of equal experts is the dense layer."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP

from mmrl.methods.preferences.uni_moe.layer import ExpertLayer, select_top_p, weigh_experts
from mmrl.methods.preferences.uni_moe.model import UniMoeConfig

SMALL = {"hidden_size": 8, "intermediate_size": 6, "moe_intermediate_size": 6, "shared_intermediate_size": 3}


def build(**options):
    torch.manual_seed(0)
    layer = ExpertLayer(UniMoeConfig(**{**SMALL, "num_experts": 3, "num_null_experts": 2, **options}))
    with torch.no_grad():
        for weight in layer.parameters():
            weight.normal_()
    return layer


def perceptron(gate, up, down, state):
    return down @ (F.silu(gate @ state) * (up @ state))


def loop(layer, state):
    """One token by hand: the output, and the numbers of the routed and null experts that it selects."""
    logits = layer.gate.weight @ state
    competing = layer.gate.competing
    probs = logits[:competing].softmax(0).tolist()
    selected, total = [], 0.0
    for expert in sorted(range(competing), key=lambda each: -probs[each]):
        selected.append(expert)
        total += probs[expert]
        if total >= layer.gate.top_p:
            break
    members = [*selected, *range(competing, len(logits))]
    weights = dict(zip(members, logits[members].softmax(0)))
    output = torch.zeros_like(state)
    for expert, weight in weights.items():
        if expert < len(layer.experts.down_proj):
            gate, up = layer.experts.gate_up_proj[expert].chunk(2)
            output = output + weight * perceptron(gate, up, layer.experts.down_proj[expert], state)
        elif expert >= competing:
            shared = layer.shared[expert - competing]
            output = output + weight * perceptron(
                shared.gate_proj.weight, shared.up_proj.weight, shared.down_proj.weight, state
            )
    return output, selected


def test_experts_are_added_until_their_probability_reaches_p():
    """.5 < .7 <= .5 + .3: two experts; .15 and .05 are left out. In another order the same two."""
    probs = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.3, 0.15, 0.5]])
    assert select_top_p(probs, 0.7).tolist() == [[True, True, False, False], [False, True, False, True]]
    # .5 >= .5: one; .5 + .3 < .9 <= .95: three; all of them sum to one
    assert [select_top_p(probs[0], p).sum().item() for p in (0.5, 0.9, 1.0)] == [1, 3, 4]


def test_p_of_one_selects_what_has_no_probability_too():
    """Rounding can bring the sum to 1 before the last expert."""
    assert select_top_p(torch.tensor([1.0, 0.0]), 1.0).tolist() == [True, True]
    assert select_top_p(torch.tensor([1.0, 0.0]), 0.99).tolist() == [True, False]


def test_equal_probabilities_select_the_first():
    """.25 + .25 >= .5: two of four, those in front."""
    assert select_top_p(torch.full((4,), 0.25), 0.5).tolist() == [True, True, False, False]


def test_weights_of_the_selected_sum_to_one():
    """Logits log 5, log 3, log 2 of which the first two are selected: 5/8 and 3/8."""
    logits = torch.tensor([5.0, 3.0, 2.0]).log()
    assert_close(weigh_experts(logits, torch.tensor([True, True, False])), torch.tensor([0.625, 0.375, 0.0]))


@pytest.mark.parametrize("options", [{}, {"num_shared_experts": 0}, {"num_null_experts": 0, "num_shared_experts": 2},
                                     {"routing_top_p": 1.0}, {"routing_top_p": 0.3}])  # fmt: skip
def test_the_layer_is_a_loop_over_tokens_and_experts(options):
    layer, states = build(**options), torch.randn(3, 7, 8)
    output = layer(states)
    counts = set()
    for state, value in zip(states.flatten(0, 1), output.flatten(0, 1)):
        expected, selected = loop(layer, state)
        assert_close(value, expected, atol=1e-5, rtol=1e-5)
        counts.add(len(selected))
    if 0.3 < layer.gate.top_p < 1:
        assert len(counts) > 1  # tokens have different numbers of experts
    states.requires_grad_()
    layer(states).sum().backward()
    gradient, states.grad = states.grad, None
    sum(loop(layer, state)[0].sum() for state in states.flatten(0, 1)).backward()
    assert_close(gradient, states.grad, atol=1e-4, rtol=1e-4)


def test_equal_experts_with_p_one_are_the_dense_layer():
    layer, dense = build(num_null_experts=0, num_shared_experts=0, routing_top_p=1.0), Qwen2MLP(UniMoeConfig(**SMALL))
    with torch.no_grad():
        layer.experts.gate_up_proj[:] = torch.cat([dense.gate_proj.weight, dense.up_proj.weight])
        layer.experts.down_proj[:] = dense.down_proj.weight
    states = torch.randn(2, 5, 8)
    assert_close(layer(states), dense(states))


def test_a_token_of_null_experts_alone_has_the_shared_ones():
    """Logits 0, 0, 0 of the routed, 50 and 50 of the null, 50 of the shared expert: weights 1/3 each of the last three,
    of which two output 0."""
    layer = build()
    with torch.no_grad():
        layer.gate.weight[:] = torch.tensor([0.0, 0, 0, 50, 50, 50])[:, None] / 8
    states = torch.ones(1, 1, 8)
    assert_close(layer(states), layer.shared[0](states) / 3)
    assert (build(num_shared_experts=0).gate.weight[:, 0] != 0).all()
    alone = build(num_shared_experts=0)
    with torch.no_grad():
        alone.gate.weight[:] = torch.tensor([0.0, 0, 0, 50, 50])[:, None] / 8
    assert_close(alone(states), torch.zeros_like(states))


@pytest.mark.parametrize(
    "options, name",
    [
        ({"routing_top_p": 0.0}, "routing_top_p"),
        ({"num_experts": 0}, "num_experts"),
        ({"num_null_experts": -1}, "num_null_experts"),
    ],
)
def test_impossible_settings_are_refused(options, name):
    with pytest.raises(Exception, match=name):
        UniMoeConfig(**options)
