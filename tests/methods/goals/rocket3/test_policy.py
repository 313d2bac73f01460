"""Policy on goal views: what it reads of the goal view, its unrolled log-probs, and what is stored of it."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.goals.rocket3.policy import CrossViewEncoder, CrossViewPolicy
from mmrl.rollouts.env.recurrent import RecurrentEpisodic
from sims.goal_views.sim import GoalViewSim
from sims.task import SimTask

SMALL = {"side": 5, "walls": 2, "objects": 2, "distances": {"near": 2}}
SIM = GoalViewSim(kwargs=SMALL, max_episode_steps=8)


def build_policy(**options) -> CrossViewPolicy:
    torch.manual_seed(0)
    sizes = {name: SIM.sizes()[name] for name in ("observation_dims", "actions", "image_size")}
    return CrossViewPolicy(**{**sizes, "memory_size": 6, "hidden": [8], "image_features": 12, **options})


def test_of_the_goal_view_the_masked_part_alone_is_read():
    """Masked pixels 4 to 7; three layers of convolutions see at most 5 pixels further."""
    torch.manual_seed(0)
    encoder = CrossViewEncoder((20, 20, 7), 8)
    image = torch.randint(256, (1, 20, 20, 7), dtype=torch.uint8)
    image[..., 6] = 0
    image[:, 4:8, 4:8, 6] = 255
    far, near, moved = image.clone(), image.clone(), image.clone()
    far[:, 14:, :, 3:6] = 255 - far[:, 14:, :, 3:6]
    near[:, 5:7, 5:7, 3:6] = 255 - near[:, 5:7, 5:7, 3:6]
    moved[..., 6] = image[..., 6].roll(8, dims=1)
    with torch.no_grad():
        output = encoder(image)
        assert_close(encoder(far), output, atol=0, rtol=0)
        for other in (near, moved):
            assert (encoder(other) - output).abs().max() > 1e-3


def test_the_similarity_is_the_scaled_product_of_keys_and_the_mean_query():
    """With a head that gives the similarities alone, by a loop over places and masked places."""
    torch.manual_seed(0)
    encoder = CrossViewEncoder((20, 20, 7), 100, width=4)
    encoder.head = torch.nn.Identity()
    image = torch.randint(256, (2, 20, 20, 7), dtype=torch.uint8)
    image[..., 6] = 0
    image[0, 2:4, 2:6, 6] = 255  # two whole places of two pixels a side
    image[1, 10:12, 10:11, 6] = 255  # half a place
    with torch.no_grad():
        output = encoder(image)[:, :100].reshape(2, 10, 10)
        pixels = image[..., :6].movedim(-1, 1).float() / 255 - 0.5
        view, goal = encoder.convs(pixels[:, :3]), encoder.convs(pixels[:, 3:])
        means = torch.stack([(goal[0, :, 1, 1] + goal[0, :, 1, 2]) / 2, goal[1, :, 5, 5]])
        for i in range(2):
            query = encoder.query(means[i])
            for row in range(10):
                for column in range(10):
                    key = encoder.key.weight[:, :, 0, 0] @ view[i, :, row, column] + encoder.key.bias
                    assert output[i, row, column].item() == pytest.approx(float(key @ query) / 2, abs=1e-5)


def play(policy, count: int = 6) -> Batch:
    """Rows of whole episodes that the policy played."""
    engine, task = LocalEngine(), SimTask(SIM, 64)
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0, group_size=1)
    episodes = RecurrentEpisodic(bootstrap=False).collect([(slot, task[slot]) for slot in range(count)], ctx)
    assert {episode.ended for episode in episodes} <= {"done", "time"}
    return collate(episodes, policy)


def test_unrolled_log_probs_are_those_of_the_decisions_in_any_order():
    policy = build_policy()
    with torch.no_grad():  # where the first weights are small, so are differences
        policy.head.linear.weight.normal_()
    batch = play(policy)
    assert batch.rows > 12
    shuffled = batch.select(torch.randperm(batch.rows))
    with torch.no_grad():
        out = policy(shuffled)
    assert_close(out.logprobs, shuffled["behavior_logprobs"], atol=1e-5, rtol=0)
    assert out.extra["visible_logits"].shape == (batch.rows,) and out.extra["cell_logits"].shape == (batch.rows, 25)


def test_the_goal_and_the_event_change_what_is_done():
    policy = build_policy()
    with torch.no_grad():
        policy.head.linear.weight.normal_()
    batch = play(policy)
    for name, change in (("obs.state", lambda column: column.roll(1, 1)), ("obs.image", lambda column: 255 - column)):
        with torch.no_grad():
            assert (policy(batch.with_columns(**{name: change(batch[name])})).logprobs - policy(batch).logprobs).any()


def test_a_saved_policy_is_the_same(tmp_path):
    policy = build_policy(cells=3)
    policy.save_pretrained(tmp_path)
    loaded = CrossViewPolicy(path=str(tmp_path))
    batch = play(policy)
    with torch.no_grad():
        before, after = policy(batch), loaded(batch)
    assert_close(after.logprobs, before.logprobs, atol=0, rtol=0)
    assert_close(after.extra["cell_logits"], before.extra["cell_logits"], atol=0, rtol=0)
    assert after.extra["cell_logits"].shape[1] == 9


def test_the_memory_is_needed_to_learn():
    policy = build_policy()
    with pytest.raises(ValueError, match="learner=sequences"):
        policy(play(policy))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"image_size": 20}, "reads 7 channels"),
        ({"image_size": None}, "take sim=goal_views"),
        ({"cells": 0}, "policy.cells must be at least 1"),
        ({"kind": "gaussian"}, "policy.kind must be categorical"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        build_policy(**options)


def test_actions_are_stored_as_they_are_drawn():
    policy = build_policy()
    assert policy.encode_demonstration({}, np.int64(3)).tolist() == [3]
