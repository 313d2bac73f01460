"""Kept ids stored end to end: the same numbers as padded ones, in memory proportional to the ids that are kept."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.ops.logprob import logprob_entropy
from mmrl.ops.support import support_logprob_entropy

VOCABULARY = 40_000
UNCERTAIN = 28_000


def example(sizes, vocabulary, dtype=torch.float64):
    """Logits, actions that are kept, temperatures, and the kept ids end to end and padded."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randperm(vocabulary, generator=generator)[:size] for size in sizes]
    logits = torch.randn(len(sizes), vocabulary, generator=generator, dtype=dtype)
    action = torch.tensor([int(row[-1]) if len(row) else 1 for row in rows])
    sizes = torch.tensor(sizes)
    return logits.requires_grad_(), action, torch.rand(len(sizes), generator=generator) + 0.5, rows, sizes


def test_it_says_what_padded_ids_say():
    logits, action, temperature, rows, sizes = example([3, 0, 1, 9, 8, 5, 2, 0, 4], 12)
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    expected = logprob_entropy(logits[:, None], action[:, None], temperature, padded[:, None])
    ids = torch.cat(rows).int()
    result = support_logprob_entropy(logits, action, temperature, ids, sizes.cumsum(0) - sizes, sizes)
    for one, other in zip(result, expected):
        assert_close(one, other[:, 0])
        (slope,) = torch.autograd.grad(one.sum(), logits, retain_graph=True)
        assert_close(slope, torch.autograd.grad(other.sum(), logits, retain_graph=True)[0])
    assert result[0][1] == logprob_entropy(logits[:, None], action[:, None], temperature)[0][1, 0]
    scored = torch.arange(9) != 1
    skipped = support_logprob_entropy(logits, action, temperature, ids, sizes.cumsum(0) - sizes, sizes, scored)
    assert skipped[0][1] == 0 and torch.equal(skipped[0][2:], result[0][2:])
    cut = action.clone()
    cut[0] = next(i for i in range(12) if i not in rows[0])  # an id that was cut off
    assert support_logprob_entropy(logits, cut, temperature, ids, sizes.cumsum(0) - sizes, sizes)[0][0] == -torch.inf


def test_where_nothing_restricts_a_choice():
    logits, action, temperature, _, sizes = example([0, 0], 5)
    result = support_logprob_entropy(logits, action, temperature, torch.zeros(0).int(), sizes, sizes)
    whole = logprob_entropy(logits[:, None], action[:, None], temperature)
    assert_close(torch.stack(result), torch.stack(whole)[..., 0])


@pytest.mark.parametrize("sizes", [[1] * 255 + [UNCERTAIN], [UNCERTAIN, *range(1, 200)]])
def test_one_uncertain_token_does_not_widen_the_others(sizes):
    logits, action, temperature, rows, counts = example(sizes, VOCABULARY, torch.bfloat16)
    stored = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: stored.append(saved) or saved, lambda saved: saved):
        ids = torch.cat(rows).int()
        support_logprob_entropy(logits, action, temperature, ids, counts.cumsum(0) - counts, counts)
    distinct = {saved.data_ptr(): saved.numel() for saved in stored if saved.data_ptr() != logits.data_ptr()}
    padded = len(sizes) * UNCERTAIN
    assert sum(distinct.values()) < 16 * sum(sizes) < padded / 5
