"""An output layer in chunks: scores and gradients are those of the whole, and the whole never exists."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mmrl.ops.chunked_layer import apply_in_chunks
from mmrl.ops.logprob import logprob_entropy

TOKENS, HIDDEN, IDS = 23, 8, 50


class Adapted(nn.Module):
    """A frozen layer with an adapter of rank 2."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(HIDDEN, IDS).requires_grad_(False)
        self.down, self.up = nn.Linear(HIDDEN, 2, bias=False), nn.Linear(2, IDS, bias=False)

    def forward(self, hidden):
        return self.base(hidden) + self.up(self.down(hidden))


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that an operation made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.numbers = max(self.numbers, leaf.numel())
        return out


LAYERS = {
    "linear": lambda: nn.Linear(HIDDEN, IDS, bias=False),
    "bias": lambda: nn.Linear(HIDDEN, IDS),
    "frozen": lambda: nn.Linear(HIDDEN, IDS, bias=False).requires_grad_(False),
    "adapter": Adapted,
}
layers = pytest.mark.parametrize("kind", LAYERS)


def example(kind, dtype=torch.float32):
    torch.manual_seed(0)
    layer = LAYERS[kind]().to(dtype)
    hidden = (3 * torch.randn(TOKENS, HIDDEN, dtype=dtype)).requires_grad_()
    ids, temperature = torch.randint(IDS, (TOKENS,)), torch.rand(TOKENS) + 0.5

    def score(logits, at):
        logprobs, entropy = logprob_entropy(logits[:, None], ids[at, None], temperature[at])
        top = logits.topk(3).values.float()  # a statistic of several numbers
        return [logprobs[:, 0], entropy[:, 0], top]

    return layer, hidden, score


def loss(logprobs, entropy, top):
    return smooth_loss(logprobs, entropy) + top[:, 1].sum()


def smooth_loss(logprobs, entropy, *_):
    return (logprobs * torch.linspace(-1, 2, TOKENS)).sum() + entropy.square().sum()


def gradients(layer, hidden):
    return [tensor.grad for tensor in (hidden, *layer.parameters()) if tensor.requires_grad]


@layers
@pytest.mark.parametrize("rows", [1, 5, 23, 100])
def test_scores_and_gradients_are_those_of_the_whole(kind, rows):
    layer, hidden, score = example(kind)
    expected = score(layer(hidden), slice(None))
    loss(*expected).backward()
    other, same, score = example(kind)
    result = apply_in_chunks(other, same, score, rows)
    loss(*result).backward()
    assert_close(list(result), expected, rtol=1e-5, atol=1e-5)
    assert_close(gradients(other, same), gradients(layer, hidden), rtol=1e-5, atol=1e-5)


def test_gradients_are_derivatives():
    layer, hidden, score = example("bias", torch.float64)

    def chunked(states):
        return apply_in_chunks(layer, states, lambda logits, at: score(logits, at)[:2], 4)

    assert torch.autograd.gradcheck(chunked, hidden)


@layers
def test_no_tensor_has_tokens_times_vocabulary_numbers(kind):
    layer, hidden, score = example(kind)
    with Largest() as chunked:
        loss(*apply_in_chunks(layer, hidden, score, 5)).backward()
    assert chunked.numbers <= max(5, HIDDEN) * IDS < TOKENS * IDS
    with Largest() as whole:
        loss(*score(layer(hidden), slice(None))).backward()
    assert whole.numbers >= TOKENS * IDS


@layers
def test_a_score_without_a_gradient_is_left_out(kind):
    layer, hidden, score = example(kind)
    apply_in_chunks(layer, hidden, score, 5)[0].sum().backward()
    other, same, score = example(kind)
    score(other(same), slice(None))[0].sum().backward()
    assert_close(gradients(layer, hidden), gradients(other, same), rtol=1e-5, atol=1e-5)


@layers
def test_gradients_in_bf16_arithmetic_are_as_near_as_those_of_the_whole(kind):
    exact, hidden, score = example(kind)
    smooth_loss(*score(exact(hidden), slice(None))).backward()
    found = []
    for rows in (5, None):
        layer, states, score = example(kind)
        with torch.autocast("cpu", torch.bfloat16):
            made = score(layer(states), slice(None)) if rows is None else apply_in_chunks(layer, states, score, rows)
        smooth_loss(*made).backward()  # outside of autocast, as Lightning calls it
        pairs = zip(gradients(layer, states), gradients(exact, hidden))
        found.append([float((mine - its).norm() / its.norm()) for mine, its in pairs])
    for chunked, whole in zip(*found):
        assert chunked < 1.2 * whole < 0.05


def test_autocast_keeps_no_weight_without_a_gradient():
    """Two passes in one autocast context: the second, of the whole, still reaches the weight."""
    layer, hidden, score = example("linear")
    with torch.autocast("cpu", torch.bfloat16):
        apply_in_chunks(layer, hidden, score, 5)
        score(layer(hidden), slice(None))[0].sum().backward()
    assert layer.weight.grad.abs().max() > 0


def test_nothing_is_kept_without_gradients():
    layer, hidden, score = example("linear")
    with torch.no_grad():
        result = apply_in_chunks(layer, hidden, score, 5)
    assert not any(part.requires_grad for part in result)
    assert_close(list(result), score(layer(hidden), slice(None)))
