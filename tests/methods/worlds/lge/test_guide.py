"""LGE: what the guide leaves, that it is learned from demonstrations, and when the explorer is plain DRRN."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.worlds.lge.guide import ABSENT, GuidedExplorer, exchange, keep_relevant
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.policies.text.actions.word_scorer import WordScorer
from mmrl.rollouts.text.environment_demonstrations import EnvironmentDemonstrations
from tasks.house import House

SMALL = {"buckets": 512, "embedding": 8, "hidden": 8}
RELEVANCE = torch.tensor([[0.9, 0.2, 0.7, 0.4]])


def explorer(**options) -> GuidedExplorer:
    torch.manual_seed(0)
    return GuidedExplorer(**SMALL, **options)


def observations(policy, *sizes):
    """Decisions with so many actions each."""
    messages = ({"role": "system", "content": "Find the cup."}, {"role": "user", "content": "A hall."})
    raws = [{"messages": messages, "admissible_actions": [f"take thing{i}" for i in range(size)]} for size in sizes]
    return policy.collate([policy.encode(raw) for raw in raws])


def test_the_two_most_relevant_of_four_are_left():
    """Scores (.9, .2, .7, .4) and k = 2 leave the first and the third: Q = (1, 5, 0, 5) gives softmax(1, 0)."""
    q = torch.tensor([[1.0, 5.0, 0.0, 5.0]])
    probabilities = keep_relevant(q, RELEVANCE, torch.tensor([True]), 2).softmax(1)
    first = math.e / (1 + math.e)  # .731059
    assert_close(probabilities, torch.tensor([[first, 0.0, 1 - first, 0.0]]))
    assert probabilities[0, 1] == probabilities[0, 3] == 0  # exactly
    assert torch.equal(keep_relevant(q, RELEVANCE, torch.tensor([False]), 2), q)
    assert torch.equal(keep_relevant(q, RELEVANCE, torch.tensor([True]), 4), q)
    equal = keep_relevant(q, torch.zeros(1, 4), torch.tensor([True]), 1)
    assert (equal > MASKED_LOGIT).tolist() == [[True, False, False, False]]


@pytest.mark.parametrize("options", [{"guided": 0.0, "k": 1}, {"guided": 1.0, "k": 7}, {"guided": 1.0, "k": 50}])
def test_without_guidance_or_with_a_large_k_the_draws_are_those_of_drrn(options):
    policy = explorer(**options)
    plain = WordScorer(**SMALL)
    plain.load_state_dict(policy.state_dict(), strict=False)
    rows = observations(policy, *range(1, 8), *range(1, 8))
    ours, theirs = (each.act(rows, Sampling(), Noise(range(14))) for each in (policy, plain))
    assert torch.equal(ours.action, theirs.action) and torch.equal(ours.behavior_logprobs, theirs.behavior_logprobs)


def test_a_guided_share_of_the_decisions_is_among_the_most_relevant():
    """k = 1 leaves one action of eight; unguided decisions are nearly uniform before training: .75 + .25 / 8 = .78."""
    policy = explorer(guided=0.75, k=1)
    rows = observations(policy, *[8] * 600)
    best = policy.guide(observations(policy, 8)).argmax()
    share = (policy.act(rows, Sampling(), Noise(range(600))).action[:, 0] == best).float().mean()
    assert abs(share - 0.78) < 0.06  # 3.5 standard deviations of .017
    greedy = policy.act(rows, Sampling(decode="argmax"), Noise(range(600))).action[:, 0]
    largest = policy.score(rows)[0][0].argmax()
    assert largest != best and set(greedy.tolist()) == {int(best), int(largest)}
    alone = explorer(guided=0.75, k=1, guides_evaluation=False)
    assert (alone.act(rows, Sampling(decode="argmax"), Noise(range(600))).action == largest).all()


def test_padding_is_no_action_and_is_never_left():
    policy = explorer(guided=1.0, k=3)
    relevance = policy.guide(observations(policy, 2, 5))
    assert (relevance[0, 2:] == ABSENT).all() and relevance[0, :2].abs().max() <= 1
    actions = policy.act(observations(policy, *[2, 5] * 100), Sampling(), Noise(range(200))).action[::2]
    assert set(actions.flatten().tolist()) == {0, 1}


def test_a_shuffled_guide_has_the_same_relevances_of_other_actions():
    relevance = torch.cat([RELEVANCE, torch.tensor([[0.5, 0.1, ABSENT, ABSENT]])])
    out = exchange(relevance, torch.tensor([4, 2]))
    assert_close(out.sort(1).values, relevance.sort(1).values)
    assert not torch.equal(out[0], relevance[0]) and (out[1, 2:] == ABSENT).all()


def test_the_contrastive_loss_by_hand():
    """Cosines .8 and .6 at tau = .2 are the logits 4 and 3: -log(e^4 / (e^4 + e^3)) = log(1 + e^-1) = .313262."""
    policy = explorer(trains="guide", tau=0.2)
    policy.guide.forward = lambda observation: torch.tensor([[0.8, 0.6, ABSENT]])
    columns = {f"obs.{name}": column for name, column in observations(policy, 2).items()}
    out = policy(Batch(columns, action=torch.tensor([[0]]), temperature=torch.ones(1)))
    assert -out.logprobs.item() == pytest.approx(math.log1p(math.exp(-1)), abs=1e-6)


def test_the_guide_learns_from_demonstrations_which_actions_a_task_needs():
    """Demonstrations of 24 houses; in others the expert's next action is among the 8 most relevant of about 50."""
    torch.manual_seed(0)
    policy = GuidedExplorer(buckets=512, embedding=16, hidden=32, trains="guide")
    task, engine = House(items=2, targets=2), LocalEngine()
    engine.sync(policy, 0)

    def demonstrate(task, count):
        ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0)
        return collate(EnvironmentDemonstrations().collect([(i, task[i]) for i in range(count)], ctx), policy)

    def recall(batch):
        with torch.no_grad():
            order = policy.guide(batch.observation()).argsort(dim=1, descending=True)
        return (order[:, :8] == batch["action"]).any(1).float().mean().item()

    train, held_out = demonstrate(task, 24), demonstrate(task.on("held_out"), 20)
    before = recall(held_out)
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        (-policy(train).logprobs.mean()).backward()
        optimizer.step()
    assert before < 0.6 and recall(held_out) > 0.9
    assert all(p.grad is None for name, p in policy.named_parameters() if not name.startswith("guide"))


def test_each_stage_trains_its_own_network():
    for trains, prefix in (("guide", True), ("q", False)):
        policy = explorer(trains=trains)
        trained = {name.startswith("guide.") for name, each in policy.named_parameters() if each.requires_grad}
        assert trained == {prefix}


def test_refusals():
    for options in ({"guided": 1.5}, {"k": 0}, {"tau": 0.0}, {"trains": "both"}):
        with pytest.raises(ValueError, match=f"policy.*{next(iter(options))}"):
            GuidedExplorer(**SMALL, **options)
