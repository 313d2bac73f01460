"""Branches before tokens of high entropy: where they begin, and what they are trained on."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.cure import EntropyBranches, choose_branch
from mmrl.policies.text.policy import TextPolicy
from mmrl.types import Context, Prompt, Sampling

CONFIG = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 2, "initializer_range": 0.5}  # fmt: skip
PROMPTS = [(slot, Prompt(f"sums/train/{slot}", ({"role": "user", "content": f"{slot}+2="},))) for slot in range(2)]


def test_candidates_are_those_of_highest_entropy():
    # without the first: 2 at 1, 1.8 at 5, 1.5 at 3
    entropy, everywhere = torch.tensor([0.1, 2.0, 0.3, 1.5, 0.2, 1.8]), torch.ones(6).bool()
    drawn = [choose_branch(entropy, everywhere, 3, np.random.default_rng(seed)) for seed in range(60)]
    assert set(drawn) == {1, 3, 5} and min(map(drawn.count, (1, 3, 5))) > 8
    rng = np.random.default_rng(0)
    high_first = torch.tensor([9.0, 0.1])
    assert choose_branch(high_first, torch.ones(2).bool(), 1, rng) == 1
    assert choose_branch(entropy, torch.tensor([True] + [False] * 5), 3, rng) == 0  # nothing is kept
    assert choose_branch(entropy, torch.arange(6) == 4, 3, rng) == 4


@pytest.mark.parametrize("truncation", [{}, {"top_k": 12}], ids=str)
def test_a_branch_keeps_tokens_of_its_answer_and_learns_from_the_others(truncation):
    torch.manual_seed(0)
    policy = TextPolicy(config=dict(CONFIG)).eval()
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(None, engine, policy, Sampling(max_tokens=6, **truncation), 0, 0, group_size=8)
    episodes = EntropyBranches(branches=3, top=2, min_characters=0).collect(PROMPTS, ctx)
    assert [(e.group, e.sample_index) for e in episodes] == [(g, i) for g in range(2) for i in range(8)]
    batch = collate(episodes, policy)
    scored = policy(batch).logprobs.detach()
    mask = batch["action_mask"]
    assert_close(scored[mask], batch["behavior_logprobs"][mask], atol=1e-4, rtol=0)
    positions = set()
    for group in range(2):
        own = {e.sample_index: e.turns[0].completion for e in episodes if e.group == group}
        for e in episodes:
            if e.group != group or e.sample_index < 2:
                continue
            root, done = own[(e.sample_index - 2) // 3], e.turns[0].completion
            kept = e.info["kept"]
            positions.add(kept)
            assert torch.equal(done.action[:kept], root.action[:kept]) and len(done.action) <= 6
            assert done.action_mask.tolist() == [False] * kept + [True] * (len(done.action) - kept)
            assert done.output == policy.decode(done.action.tolist())
    assert len(positions) > 1 and 0 not in positions
    again = EntropyBranches(branches=3, top=2, min_characters=0).collect(PROMPTS, ctx)
    assert all(torch.equal(a.turns[0].completion.action, b.turns[0].completion.action) for a, b in zip(episodes, again))


def test_sizes_that_do_not_fit_are_refused():
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=6)
    with pytest.raises(ValueError, match="multiple of 4"):
        EntropyBranches(branches=3).collect(PROMPTS, ctx)
    with pytest.raises(ValueError, match="branches"):
        EntropyBranches(branches=0)
