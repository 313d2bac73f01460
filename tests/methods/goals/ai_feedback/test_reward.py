"""AI feedback: the loss and the shaped reward by hand, the fitted model, rollouts, runs, and what they refuse."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import mmrl
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.goals.ai_feedback.annotators import CaptionAnnotator, RuleAnnotator
from mmrl.methods.goals.ai_feedback.pairs import CaptionReader, LabelledPair
from mmrl.methods.goals.ai_feedback.reward_model import (
    CaptionReward,
    fit_reward,
    measure_labels,
    preference_loss,
    shape_reward,
)
from mmrl.methods.goals.ai_feedback.rollout import AIFeedback, CaptionRewardSim, RewardFit, Shaping
from mmrl.policies.control.policy import ControlPolicy
from mmrl.rewards.judges.base import NoAnswer
from sims.craft.progress import RecipeProgress
from sims.task import SimTask
from tests.sims.craft.test_world import COLLECT, DOWN, LEFT, PLANK, UP, place
from tests.sims.craft.worlds import default, tiny
from tests.tiny_recipes import QUIET


def test_the_loss_by_hand():
    """log 2 of an equal pair at margin 0, where its gradient is 0; at margin 1.2 the mean of both orders' losses,
    log(1 + e^-1.2) = 0.263282 and log(1 + e^1.2) = 1.463282."""
    first = torch.tensor([0.0, 1.2, 1.2, 1.2], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.5, 0.5, 1.0, 0.0], dtype=torch.float64)
    loss = preference_loss(first, torch.zeros(4, dtype=torch.float64), target)
    assert loss.tolist() == pytest.approx([0.693147, 0.863282, 0.263282, 1.463282], abs=1e-6)
    assert loss[1].item() == pytest.approx((math.log1p(math.exp(-1.2)) + math.log1p(math.exp(1.2))) / 2, abs=1e-12)
    loss.sum().backward()
    # sigmoid(margin) - target, of which sigmoid(1.2) = 0.768525
    assert first.grad.tolist() == pytest.approx([0.0, 0.268525, -0.231475, 0.768525], abs=1e-6)


def test_the_released_codes_loss():
    """Cross-entropy of the softmax over both rewards with soft labels, as Motif's training script computes it."""
    rewards, target = torch.randn(2, 7, generator=torch.Generator().manual_seed(0)), torch.rand(7)
    expected = torch.nn.functional.cross_entropy(rewards.T, torch.stack([target, 1 - target], 1), reduction="none")
    assert preference_loss(*rewards, target).tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_shaped_reward_by_hand():
    """Above the threshold 0.5: 2 at once, 2 / 8 the second time, 2 / 27 the third; at and below it nothing."""
    rewards, counts = np.array([2.0, 2.0, 2.0, 0.5, -1.0]), np.array([1, 2, 3, 1, 1])
    assert shape_reward(rewards, counts, 0.5).tolist() == pytest.approx([2.0, 0.25, 2 / 27, 0.0, 0.0])
    assert shape_reward(rewards, counts, -2.0, 1.0).tolist() == pytest.approx([2.0, 1.0, 2 / 3, 0.5, -1.0])


def test_the_scale_is_that_of_the_captions():
    """Mean 0, deviation 1 and the median as the threshold, of captions as often as they are given."""
    model, texts = CaptionReward(seed=3), ["a", "b", "b", "c c", "d"]
    before = model(texts).detach().double().numpy()
    model.normalise(texts, 0.5)
    scores = model.score(texts)
    assert scores == pytest.approx((before - before.mean()) / before.std(), abs=1e-6)
    assert scores.mean() == pytest.approx(0, abs=1e-6) and scores.std() == pytest.approx(1, abs=1e-6)
    assert float(model.threshold) == pytest.approx(np.median(scores))
    assert model.score(["a b"]) != pytest.approx(model.score(["b a"]))  # neighbours count


def labelled(noise: float, count: int = 600) -> list[LabelledPair]:
    """Captions "hold N log" of which more is better, labelled with noise."""
    rng = np.random.default_rng(0)
    pairs = []
    for a, b in rng.integers(12, size=(count, 2)).tolist():
        true = 0.5 if a == b else float(a > b)
        label = 1 - true if rng.random() < noise else true
        pairs.append(LabelledPair(f"hold {a} log", f"hold {b} log", label, true))
    return pairs


@pytest.mark.parametrize("noise, least", [(0.0, 0.97), (0.3, 0.85)])
def test_the_true_order_is_learned_from_noisy_labels(noise, least):
    pairs = labelled(noise)
    model = CaptionReward(512, 16, seed=1)
    before = measure_labels(model, pairs[:500], pairs[500:])
    fit_reward(model, pairs[:500], 10, 32, 3e-3, 0)
    after = measure_labels(model, pairs[:500], pairs[500:])
    assert after["accuracy"] > least and before["accuracy"] < 0.7
    ordered = [each for each in pairs if each.true != 0.5]
    right = sum(each.label == each.true for each in ordered) / len(ordered)
    assert after["label_accuracy"] == pytest.approx(right) and abs(right - 1 + noise) < 0.08
    assert after["pairs"] == 600 and 0.05 < after["equal"] < 0.12 and after["unsure"] == 0


def test_unsure_pairs_are_left_out_and_a_fit_depends_on_its_seed_alone():
    pairs = labelled(0.1, 80)
    unsure = [LabelledPair("hold 1 log", "hold 9 log", None)] * 5
    weights = []
    for rows, torch_seed in ((pairs, 0), ([*pairs, *unsure], 1)):
        torch.manual_seed(torch_seed)
        model = CaptionReward(64, 8, seed=2)
        fit_reward(model, rows, 2, 16, 1e-3, 5)
        weights.append(model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert "accuracy" not in measure_labels(model, pairs, unsure)


class Logs(CaptionReward):
    """Rewards 1, 2, 3 of one, two and more planks or logs held, 0 of nothing; the threshold is 0.5."""

    def score(self, captions):
        amounts = {"hold nothing": 0.0, "hold 1 log": 1.0, "hold 2 plank": 2.0}
        return np.array([amounts.get(caption, 3.0) for caption in captions])


def shaped(**options):
    model, notes = Logs(), []
    model.threshold.fill_(0.5)
    sim = CaptionRewardSim(tiny(), model, CaptionReader("hold [^.]*"), Shaping(**options), notes)
    return sim.make(1), notes


def test_a_whole_episode_is_paid_by_hand():
    env, notes = shaped(coef=0.1, env_coef=10.0)
    env.reset(seed=[0])
    place(env.unwrapped.envs[0])
    # a log is met once, again when walking on, then two planks once, again and a third time
    played = [(UP, 0), (COLLECT, 1), (LEFT, 1 / 8), (PLANK, 2), (DOWN, 2 / 8), (UP, 2 / 27), (COLLECT, 3)]
    for action, reward in played:
        assert env.step([action])[1][0] == pytest.approx(0.1 * reward)
    assert notes == pytest.approx([reward for _, reward in played])
    env.reset(seed=[0])  # counts are those of an episode
    place(env.unwrapped.envs[0])
    env.step([UP])
    assert env.step([COLLECT])[1][0] == pytest.approx(0.1)


def test_the_simulators_reward_has_its_weight_and_ended_worlds_are_not_paid():
    env, notes = shaped(coef=0.0, env_coef=10.0)
    env.reset(seed=[0])
    world = env.unwrapped.envs[0]
    place(world)
    world.held[3], world.row, world.column = 1, 2, 1  # a table, on the stone
    _, reward, terminated, *_ = env.step([COLLECT])
    assert reward[0] == 10 and terminated[0]
    count = len(notes)
    assert env.step([UP])[1][0] == 0 and len(notes) == count


def test_a_saved_environment_goes_on_with_its_counts():
    rng = np.random.default_rng(0)
    (one, _), (other, _) = shaped(), shaped()
    one.reset(seed=[2])
    for _ in range(15):
        one.step(rng.integers(7, size=1))
    other.load_state_dict(one.state_dict())
    for _ in range(20):
        actions = rng.integers(7, size=1)
        assert one.step(actions)[1].tolist() == other.step(actions)[1].tolist()


class Silent(CaptionAnnotator):
    """Gives no answer, or is always unsure."""

    def __init__(self, answer):
        self.answer = answer

    def label(self, pairs, rng):
        return [self.answer] * len(pairs)


def build(folder: Path, annotator: CaptionAnnotator, **options) -> AIFeedback:
    small = {"num_envs": 2, "horizon": 8, "episodes": 4, "decisions": 20, "num_pairs": 60, "fit": RewardFit(passes=2)}
    rule = {"progress": RecipeProgress(), "caption": "hold [^.]*"}
    return AIFeedback(annotator, str(folder / "pairs.jsonl"), **{**small, **rule, **options})


def context() -> Context:
    torch.manual_seed(1)
    task, engine = SimTask(default(max_steps=12)), LocalEngine()
    policy = ControlPolicy(23, 13, "categorical", hidden=[8])
    engine.sync(policy, 0)
    return Context(task, engine, policy, Sampling(), seed=0, iteration=0)


def rewards_of(episodes) -> list[float]:
    return [turn.reward for episode in episodes for turn in episode.turns]


def test_a_rollout_labels_once_and_goes_on_where_it_was_saved(tmp_path):
    ctx, rollout = context(), build(tmp_path, RuleAnnotator(0.2), shaping=Shaping(quantile=0.0))
    rollout.collect([(0, ctx.task[0]), (1, ctx.task[1])], ctx)
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    metrics = rollout.metrics()
    assert len(rows) == 60 == metrics["ai_feedback/pairs"] and 0 < metrics["ai_feedback/paid"] <= 1
    assert metrics["ai_feedback/accuracy"] > 0.5 and 0.6 < metrics["ai_feedback/label_accuracy"] < 1
    again = build(tmp_path / "elsewhere", Silent(None), shaping=Shaping(quantile=0.0))  # asks nobody
    again.load_state_dict(rollout.state_dict())
    following = [rewards_of(each.collect([], ctx)) for each in (rollout, again)]
    assert following[0] == following[1] and any(following[0]) and rollout.metrics() == again.metrics()
    from_file = build(tmp_path, Silent(None))
    from_file.collect([], ctx)
    assert from_file.metrics()["ai_feedback/accuracy"] == metrics["ai_feedback/accuracy"]
    assert rollout.share_states([rollout.state_dict()], 0, 1)["measures"] == rollout.state_dict()["measures"]


def test_refusals(tmp_path):
    ctx = context()
    with pytest.raises(ConfigError, match=r"60 of 60 pairs have no answer.*busy"):
        build(tmp_path, Silent(NoAnswer("busy"))).collect([], ctx)
    assert not (tmp_path / "pairs.jsonl").exists()
    with pytest.raises(ConfigError, match="labelled 0 of 60 pairs and was unsure"):
        build(tmp_path, Silent(None)).collect([], ctx)
    for options in ({"num_pairs": 1}, {"episodes": 0}, {"random_fractions": [2.0]}, {"random_fractions": []}):
        with pytest.raises(ValueError, match=rf"rollout\.{next(iter(options))}"):
            build(tmp_path, RuleAnnotator(), **options)
    for part, options in ((Shaping, {"quantile": 2.0}), (Shaping, {"coef": -1.0}), (RewardFit, {"held_out": 1.0})):
        with pytest.raises(ValueError, match=next(iter(options))):
            part(**options)


TINY = (
    *("rollout.num_envs=2", "rollout.horizon=32", "data.num_minibatches=1", "capture=false", "data.update_epochs=1"),
    *("rollout.episodes=8", "rollout.decisions=60", "rollout.num_pairs=200", "evaluation.count=2", "sim.max_steps=16"),
    *("trainer.check_val_every_n_epoch=4", *(word for word in QUIET if word != "trainer.logger=false")),
)


def test_a_run_that_is_resumed_is_the_run(tmp_path):
    words = ("recipe=ai_feedback", "scheduler=constant", *TINY)
    whole = mmrl.fit(*words, "trainer.max_epochs=4", f"run_dir='{tmp_path / 'whole'}'")
    part = (*words, f"run_dir='{tmp_path / 'part'}'")
    first = mmrl.fit(*part, "trainer.max_epochs=2")
    (tmp_path / "part" / "start" / "preferences.jsonl").unlink()  # the reward model is in the checkpoint
    resumed = mmrl.fit(*part, "trainer.max_epochs=4", ckpt_path=first.checkpoint)
    assert first.last_metrics["ai_feedback/accuracy"] == resumed.last_metrics["ai_feedback/accuracy"] > 0.6
    one, other = (run.load_policy().policy.state_dict() for run in (whole, resumed))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
