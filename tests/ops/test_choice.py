"""Drawing from logits: what a mask is worth, and sums that are not monotone."""

import pytest
import torch

from mmrl.methods.entropy.siren import nucleus_entropy
from mmrl.ops.choice import MASKED_LOGIT, draw, inverse_cdf
from mmrl.ops.logprob import logprob_entropy


def blocked_cumsum(values, dim=-1, **_):
    """Cumulative sums as a parallel machine makes them: within blocks, and what stands before a block added after."""
    size, block = values.shape[-1], 64
    inside = torch.cumsum(torch.nn.functional.pad(values, (0, -size % block)).unflatten(-1, (-1, block)), -1)
    totals = inside[..., -1]
    before = torch.stack([totals[..., :i].flip(-1).sum(-1) for i in range(totals.shape[-1])], -1)
    return (inside + before[..., None]).flatten(-2)[..., :size]


def test_a_draw_is_possible_and_first_where_the_sum_is_not_monotone(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(16, 4096, generator=generator) ** 8
    probabilities *= torch.rand(16, 4096, generator=generator) < 0.2  # what truncation and masks leave
    probabilities /= probabilities.sum(-1, keepdim=True)
    cumulative = blocked_cumsum(probabilities)
    assert (cumulative.diff(dim=-1) < 0).any()  # the case exists
    # thresholds on the sums themselves and between them: where rounding decides
    uniform = cumulative[:, ::7].clamp(1e-7, 1 - 1e-7)
    uniform = torch.cat([uniform, (uniform + 3e-8).clamp(max=1 - 6e-8)], dim=1).sort(dim=1).values
    monkeypatch.setattr(torch.Tensor, "cumsum", blocked_cumsum)
    drawn = torch.stack([inverse_cdf(probabilities, level) for level in uniform.T], dim=1)
    assert (probabilities.gather(1, drawn) > 0).all()
    assert (drawn.diff(dim=1) >= 0).all()


def test_what_truncation_keeps_is_one_piece_where_the_sum_is_not_monotone(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "cumsum", blocked_cumsum)
    for row in 4 * torch.randn(4, 16384, generator=torch.Generator().manual_seed(0)):
        probabilities = row.sort(descending=True).values.softmax(-1)
        before = blocked_cumsum(probabilities) - probabilities
        falls = (before.diff() < 0) & (before[:-1] < 1)
        assert falls.any()
        top_p = float(before[:-1][falls][0])  # the next id has less before it
        _, _, kept = draw(row[None], torch.full((1,), 0.5), top_p=top_p)
        ids = kept[kept >= 0]
        assert torch.equal(ids.sort().values, row.topk(len(ids)).indices.sort().values)
        assert abs(float(row.softmax(-1)[ids].sum()) - top_p) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("temperature", [0.3, 0.5, 1.0, 2.0])
def test_a_masked_id_counts_for_nothing_in_every_dtype(dtype, temperature):
    """Log-probability, entropy, their gradients and draws are those of the three ids that are left."""
    logits = torch.tensor([[[30.0, -12.0, 4.0, 29.5]]], dtype=dtype)
    masked = logits.index_fill(-1, torch.tensor([3]), MASKED_LOGIT)
    assert (masked / temperature).isfinite().all()
    action = torch.tensor([[2]])
    rest = [logits[..., :3].clone().requires_grad_(), masked.clone().requires_grad_()]
    result = []
    for part in rest:
        logprob, entropy = logprob_entropy(part, action, temperature)
        total = logprob + entropy + nucleus_entropy(part, 1.0, temperature)
        total.sum().backward()
        result.append((logprob, entropy, nucleus_entropy(part, 1.0, temperature), part.grad[..., :3]))
    for alone, with_mask in zip(*result):
        assert torch.equal(alone, with_mask)
    assert (rest[1].grad[..., 3] == 0).all()
    ids, _, kept = draw(
        masked[0].expand(50, -1), torch.linspace(0.001, 0.9999, 50), temperature=temperature, top_p=0.99
    )
    assert not (ids == 3).any() and not (kept == 3).any()


def test_a_mask_is_ten_thousand():
    assert -torch.finfo(torch.float16).max < MASKED_LOGIT / 0.3 and MASKED_LOGIT / 2 < -1000
