"""Rows do not depend on which Python objects hold them."""

import copy
import pickle

import pytest
import torch

from mmrl.core.batch import Ragged
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from tests.checkpoints import qwen2_5_vl
from tests.policies.text.oracle import TINY
from tests.policies.text.test_vision import PROMPTS as IMAGE_PROMPTS
from tests.tiny_recipes import Counting


def copies(episodes):
    """The episodes, each copied by itself, and each sent through a pickle by itself."""
    yield [copy.deepcopy(episode) for episode in episodes]
    yield [pickle.loads(pickle.dumps(episode)) for episode in episodes]


def assert_same(one, other):
    assert list(one) == list(other)
    for name, column in one.items():
        if isinstance(column, Ragged):
            for part in ("items", "sizes", "index"):
                assert torch.equal(getattr(column, part), getattr(other[name], part)), (name, part)
        else:
            assert torch.equal(column, other[name]), name


def played(policy, prompts):
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(None, engine, policy, Sampling(max_tokens=4), seed=0, iteration=0, group_size=3)
    return SingleTurn().collect(list(enumerate(prompts, start=5)), ctx)


@pytest.mark.parametrize("kind", ["text", "images"])
def test_copied_episodes_give_the_same_batch(kind, tmp_path):
    if kind == "text":
        policy, prompts = TextPolicy(config=TINY).eval(), [Counting()[i] for i in range(3)]
    else:
        policy, prompts = (
            VisionLanguagePolicy(path=str(qwen2_5_vl(tmp_path))).eval(),
            [IMAGE_PROMPTS[i] for i in (0, 2, 4)],
        )
    episodes = played(policy, prompts)
    batch = collate(episodes, policy)
    assert batch["prompt_id"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for copied in copies(episodes):
        assert_same(batch, collate(copied, policy))
