"""Losses and gradients of the recipes are TRL's, where TRL is installed."""

import copy
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from mmrl.core.types import Context, Sampling
from mmrl.rollouts.offline.conversations import Conversations
from tests.policies.text.test_conversation import Talks, policy  # noqa: F401

pytestmark = pytest.mark.slow
pytest.importorskip("trl", reason="an environment with TRL compares its losses")
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "peers"))


@pytest.fixture(scope="module", params=[0, 1])
def results(request):
    from trl_losses import compare

    return compare(request.param)


def test_every_loss_and_its_gradient_is_trl_s(results):
    from trl_losses import differences

    assert len(results) >= 18
    for name, (theirs, ours) in results.items():
        loss, gradient = differences(theirs, ours)
        most = max(float(part.abs().max()) for part in ours.gradient.values())
        assert most > 1e-3, name
        assert loss < 1e-5 and gradient < 1e-5 * max(1.0, most), (name, loss, gradient)


def test_the_random_rows_tell_the_losses_apart(results):
    """The clip range, the bound of the ratio and the KL term are felt: no two losses are alike."""
    losses = sorted(ours.loss for _, ours in results.values())
    assert min(b - a for a, b in pairwise(losses)) > 1e-4


def test_the_tokens_learned_in_conversations_are_those_of_assistant_only_loss(policy, tmp_path):  # noqa: F811
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer
    from trl_losses import options

    task = Talks(100)
    rows = Dataset.from_list([{"messages": messages} for messages in task.all])
    args = options(SFTConfig, str(tmp_path), assistant_only_loss=True, max_length=None)
    model = copy.deepcopy(policy.model)
    trainer = SFTTrainer(model=model, args=args, train_dataset=rows, processing_class=policy.tokenizer)
    ctx = Context(task, None, policy, Sampling(), seed=0, iteration=0)
    episodes = Conversations().collect([(slot, task[slot]) for slot in range(len(task))], ctx)
    equal = 0
    for theirs, episode in zip(trainer.train_dataset, episodes):
        row = episode.turns[0].completion
        before = row.observation["input_ids"]
        assert before.tolist() + row.action.tolist() == list(theirs["input_ids"])
        mask = torch.cat([torch.zeros(len(before), dtype=torch.bool), row.action_mask])
        labels = torch.tensor(theirs["labels"]) if "labels" in theirs else None
        learned = torch.tensor(theirs["assistant_masks"]).bool() if labels is None else labels != -100
        # a token with the newline of the generation prompt in it is theirs and not ours
        for position in (mask != learned).nonzero().flatten().tolist():
            assert learned[position] and policy.tokenizer.decode([theirs["input_ids"][position]]).startswith("\n")
        equal += bool((mask == learned).all())
    assert equal > 30
