"""EAG-RL: overlap with the expert, mentions of its features, and clip ranges by entropy, by hand."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Collector, Completion, Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.methods.guidance.eag_rl import AdaptiveClip, AdaptiveSurrogate, FeatureMask, adaptive_clip, mark_mentions
from mmrl.objectives.policy import ClippedSurrogate
from tasks.sets import jaccard
from tests.composed_words import compose_words
from tests.laws.example import Example

LAWS = [
    Example(AdaptiveClip(rows=3), scores=True),
    Example(AdaptiveSurrogate()),
    Example(AdaptiveSurrogate(0.1, old="old_logprobs")),
]


class Letters:
    """Decodes a letter a token."""

    def decode(self, ids):
        return "".join(map(chr, ids))


class Entropies(torch.nn.Module):
    """A policy whose entropy at each choice is an input."""

    def forward(self, batch):
        return PolicyOutput(torch.zeros_like(batch["obs.entropy"]), batch["obs.entropy"])


def clips(entropy, marked, collector=None):
    entropy, marked = torch.tensor(entropy), torch.tensor(marked).bool()
    batch = Batch(
        **{"obs.entropy": entropy},
        action_mask=torch.ones_like(marked),
        feature_mask=marked,
        prompt_id=torch.arange(len(entropy)),
    )
    options = {"world_size": 2, "collector": collector} if collector else {}
    ctx = Context(None, None, Entropies(), Sampling(), seed=0, iteration=0, **options)
    return AdaptiveClip(rows=2)(batch, ctx)["clip_high"]


def test_the_overlap_by_hand():
    assert jaccard(["hr", "lac", "ph"], ["lac", "ph", "spo2"]) == 0.5  # two of four names
    assert jaccard(["hr"], ["lac"]) == jaccard([], []) == 0 and jaccard(["ph", "ph"], ["ph"]) == 1


def test_clip_ranges_by_hand():
    # (.6 - .2) / (1 - .2) = 1/2 of the way from .2 to .4
    entropy = torch.tensor([0.2, 0.6, 1.0])
    assert_close(adaptive_clip(entropy, 0.2, 1.0, 0.2, 0.4), torch.tensor([0.2, 0.3, 0.4]))
    assert_close(adaptive_clip(torch.full((3,), 0.7), 0.7, 0.7, 0.2, 0.4), torch.full((3,), 0.2))  # 0 / 0 is the bound


def test_only_the_entropy_at_features_counts():
    # means at marked tokens are .2, .6 and 1; the fourth row names nothing
    entropy = [[0.2, 9.0], [0.5, 0.7], [9.0, 1.0], [5.0, 5.0]]
    marked = [[1, 0], [1, 1], [0, 1], [0, 0]]
    assert_close(clips(entropy, marked), torch.tensor([0.2, 0.3, 0.4, 0.2]))
    assert_close(clips([[0.3], [0.4]], [[0], [0]]), torch.tensor([0.2, 0.2]))

    class Two(Collector):
        def gather(self, items):
            return [*items, 1.8]

    assert_close(clips(entropy, marked, Two()), torch.tensor([0.2, 0.25, 0.3, 0.2]))  # of all processes


def test_the_loss_has_a_bound_of_each_row():
    # ratio 1.35 and A = 1: clipped at 1.2 in the first row, at 1.4 in the second; ratio .5 and A = -1 at .8 in both
    ratio = torch.tensor([[1.35, 0.5], [1.35, 0.5]])
    batch = Batch(
        action_mask=torch.ones(2, 2).bool(),
        advantages=torch.tensor([[1.0, -1.0], [1.0, -1.0]]),
        behavior_logprobs=torch.zeros(2, 2),
        clip_high=torch.tensor([0.2, 0.4]),
    )
    out = PolicyOutput(ratio.log(), torch.zeros(2, 2))
    loss = AdaptiveSurrogate(0.2)(out, batch)
    assert_close(loss, torch.tensor([[-1.2, 0.8], [-1.35, 0.8]]))
    metrics = AdaptiveSurrogate(0.2).metrics(out, batch)
    assert metrics["clip_fraction"].tolist() == [[1, 1], [0, 1]]
    equal = batch.with_columns(clip_high=torch.full((2,), 0.3))
    assert_close(AdaptiveSurrogate(0.2)(out, equal), ClippedSurrogate(0.2, 0.3)(out, equal))


def test_tokens_that_name_a_feature_are_marked():
    ids = torch.tensor([ord(letter) for letter in "hr phx ph\n7"])
    assert mark_mentions(ids, ("hr", "ph"), Letters().decode).nonzero()[:, 0].tolist() == [0, 1, 7, 8]
    pieces = {0: "h", 1: "r l", 2: "ac"}
    words = mark_mentions(torch.tensor([0, 1, 2]), ("lac",), lambda ids: "".join(pieces[i] for i in ids))
    assert words.tolist() == [False, True, True]  # a token that has a part of the name
    assert not mark_mentions(ids, (), Letters().decode).any()


def test_the_mask_is_on_what_the_policy_chose():
    ids = torch.tensor([ord(letter) for letter in "hr ph"])
    mask = torch.tensor([False, True, True, True, True])
    prompt = Prompt("records/train/0", info={"salient": ("hr", "ph")})
    episode = Episode(prompt, 0, 0, [Turn(Completion({}, ids, torch.zeros(5), mask, "hr ph"))])
    ctx = Context(None, None, Letters(), Sampling(), seed=0, iteration=0)
    (out,) = FeatureMask()([episode], ctx)
    assert out.turns[0].completion.extra["feature_mask"].tolist() == [False, True, False, True, True]
    with pytest.raises(KeyError, match="task=records"):
        FeatureMask()([replace(episode, prompt=Prompt("p/train/0"))], ctx)


def test_an_upper_range_below_the_lower_one_is_refused():
    with pytest.raises(ValueError, match="clip_min <= clip_max"):
        AdaptiveClip(clip_min=0.4, clip_max=0.2)


def test_the_tree_search_starts_after_imitation_and_has_the_reward_of_the_second_stage():
    second = compose_words(("recipe=eag_rl",))
    stages = second.trainer.callbacks.warm_start.stages
    assert list(stages) == ["sft", "search"] and stages.search[0] == "start=eag_rl_search"
    first = compose_words(tuple(stages.search))
    assert first.trainer.callbacks.warm_start.stages is None  # the weights of the stage before it are there already
    assert first.data.rollout._target_.endswith("TreeSearch") and first.data.transforms.best.count == 2
    assert first.data.reward.weights == second.data.reward.weights and first.data.sampling == second.data.sampling


def test_only_what_the_policy_chose_has_an_entropy():
    # marked tokens: .2 and a forced 9 in the first row, 1 in the second; the third row marks a forced token alone
    batch = Batch(
        **{"obs.entropy": torch.tensor([[0.2, 9.0], [1.0, 0.0], [5.0, 5.0]])},
        action_mask=torch.tensor([[True, False], [True, True], [False, True]]),
        feature_mask=torch.tensor([[True, True], [True, False], [True, False]]),
        prompt_id=torch.arange(3),
    )
    ctx = Context(None, None, Entropies(), Sampling(), seed=0, iteration=0)
    assert_close(AdaptiveClip(rows=2)(batch, ctx)["clip_high"], torch.tensor([0.2, 0.4, 0.2]))


@pytest.mark.parametrize(
    "clip_low, high, ratio, advantage, cut",
    [
        (0.2, 0.3, 1.4, 1.0, 1),
        (0.2, 0.3, 1.2, 1.0, 0),
        (0.2, 0.3, 1.4, -1.0, 0),  # the bound above is that of positive advantages
        (0.2, 0.3, 0.7, -1.0, 1),
        (0.2, 0.3, 0.9, -1.0, 0),
        (0.2, 0.3, 0.7, 1.0, 0),
        (0.2, 0.3, 1.4, 0.0, 0),
        (0.2, 0.3, 0.7, 0.0, 0),
        (0.0, 0.0, 1.0, 1.0, 0),  # at the bound nothing is cut
        (0.0, 0.0, 1.0, -1.0, 0),
    ],
)
def test_choices_without_a_gradient_by_hand(clip_low, high, ratio, advantage, cut):
    logprobs = torch.tensor([[ratio]]).log()
    batch = Batch(
        action_mask=torch.ones(1, 1).bool(),
        advantages=torch.tensor([[advantage]]),
        behavior_logprobs=torch.zeros(1, 1),
        clip_high=torch.tensor([high]),
    )
    metrics = AdaptiveSurrogate(clip_low).metrics(PolicyOutput(logprobs, logprobs), batch)
    assert metrics["clip_fraction"].tolist() == [[cut]]
