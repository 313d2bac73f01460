"""AI feedback: captions of listed episodes, which decisions are paid, and shares of labels, by hand."""

import json

import numpy as np
import pytest

from mmrl.methods.goals.ai_feedback import rollout as rollout_module
from mmrl.methods.goals.ai_feedback.annotators import RuleAnnotator
from mmrl.methods.goals.ai_feedback.pairs import CaptionReader, LabelledPair, collect_captions, write_pairs
from mmrl.methods.goals.ai_feedback.reward_model import CaptionReward, measure_labels
from mmrl.methods.goals.ai_feedback.rollout import CaptionRewardSim, RewardFit, Shaping
from mmrl.rewards.judges.base import NoAnswer
from tests.methods.goals.ai_feedback.test_reward import Logs, build, context
from tests.methods.goals.replies import ListedEnv, build_sim

NONE = [None] * 3
NO = [0, 0, 0]


def play(rows, fractions, decisions, **attributes):
    """Captions of listed episodes, and the actions that were taken."""
    env = ListedEnv(*rows)
    sim, count = build_sim(env, **attributes), env.num_envs
    reader, rng = CaptionReader(), np.random.default_rng(0)
    return list(collect_captions(sim, [1] * count, fractions, decisions, reader, None, rng)), env.actions


def list_rows(count):
    return [([f"{n}a", f"{n}b"], NO[:2], NO[:2], NONE[:2]) for n in range(count)]


def test_captions_are_read_before_the_first_decision_and_after_each():
    captions, actions = play(list_rows(5), [1.0], 3)
    assert captions == ["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"] and len(actions) == 3


def test_episodes_are_played_until_all_are_over():
    """The first is terminated by decision 1, and the second truncated by decision 2."""
    rows = list_rows(5)
    rows[1], rows[2] = (rows[1][0], [1, 0], [0, 0], NONE[:2]), (rows[2][0], [0, 0], [0, 1], NONE[:2])
    captions, actions = play(rows, [1.0], 4)
    assert captions[-1] == "2b" and len(actions) == 2


def test_a_player_without_random_actions_is_the_expert():
    """Actions of the others are 0 to 2; only the expert's are 7. Random players need no expert."""
    _, actions = play(list_rows(9), [1.0, 0.0], 8, expert=lambda env: np.full(2, 7))
    assert [second for _, second in actions] == [7] * 8 and {first for first, _ in actions} == {0, 1, 2}


def step_rewards(env):
    return env.step([0] * 3)[1].tolist()


def test_decisions_are_paid_until_an_episode_is_over_and_again_after_its_reset():
    """Three planks are worth 3, the second time 3 / 8, the third 3 / 27; a decision with an error is not counted.

    The first episode is terminated by decision 1, and the third truncated by decision 2.
    """
    rows = [
        (["hold nothing"] * 3, NO, NO, NONE),
        (["hold 3"] * 3, [1, 0, 0], NO, [None, "lost", None]),
        (["hold 3"] * 3, NO, [0, 0, 1], NONE),
        (["hold 3"] * 3, NO, NO, NONE),
        (["hold nothing"] * 3, NO, NO, NONE),
        (["hold 3"] * 3, NO, NO, NONE),
    ]
    model = Logs()
    model.threshold.fill_(0.5)
    sim = build_sim(ListedEnv(*rows))
    env = CaptionRewardSim(sim, model, CaptionReader(), Shaping(coef=1.0, env_coef=0.0), []).make(3)
    env.reset(seed=[0] * 3)
    assert step_rewards(env) == pytest.approx([3, 0, 3])
    assert step_rewards(env) == pytest.approx([0, 3, 3 / 8])
    assert step_rewards(env) == pytest.approx([0, 3 / 8, 0])
    env.reset(options={"reset_mask": np.array([True, False, False])})
    assert step_rewards(env) == pytest.approx([3, 3 / 27, 0])


def test_shares_of_labels_by_hand():
    """Of four pairs two are unsure and one is equal; the one with an order and a label is labelled wrongly."""
    same = ("hold nothing", "hold nothing")
    pairs = [
        LabelledPair("a", "b", None, 1.0), LabelledPair("a", "b", None, 0.0),
        LabelledPair("a", "b", 1.0, 0.5), LabelledPair("a", "b", 0.5, 1.0), LabelledPair("a", "b", 0.0, 1.0),
    ]  # fmt: skip
    measures = measure_labels(Logs(), pairs, [])
    assert measures == {"pairs": 5, "equal": 0.2, "unsure": 0.4, "label_accuracy": 0.0}
    # rewards that are equal do not say that the first is better
    assert measure_labels(Logs(), [], [LabelledPair(*same, 1.0, 1.0)])["accuracy"] == 0
    assert measure_labels(Logs(), [], [LabelledPair(*same, 0.0, 0.0)])["accuracy"] == 1


def test_captions_of_one_reward_have_the_score_0():
    model = CaptionReward(64, 8)
    model.normalise(["a", "a"], 0.5)
    assert model.score(["a"]).tolist() == [0.0]


def test_the_first_pairs_are_fitted_and_labelled_captions_give_the_scale(tmp_path, monkeypatch):
    """Of ten pairs a fifth is held out; the second has no label."""
    pairs = [LabelledPair(f"{n}", f"{n}x", None if n == 1 else 1.0) for n in range(10)]
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    notes = []
    monkeypatch.setattr(rollout_module, "fit_reward", lambda model, pairs, *rest: notes.append(pairs))
    monkeypatch.setattr(CaptionReward, "normalise", lambda model, texts, quantile: notes.append(texts))
    rollout = build(tmp_path, RuleAnnotator(), fit=RewardFit(held_out=0.2))
    rollout._fit_model(None, context())
    assert notes[0] == pairs[:8]
    assert notes[1] == [text for n in (0, 2, 3, 4, 5, 6, 7) for text in (f"{n}", f"{n}x")]


def test_pairs_without_an_answer_are_left_out_of_the_file(tmp_path):
    class Half(RuleAnnotator):
        def label(self, pairs, rng):
            answers = super().label(pairs, rng)
            return [NoAnswer("busy") if n % 2 else answer for n, answer in enumerate(answers)]

    ctx = context()
    labelled = build(tmp_path, Half(), max_failed=0.5)._label_pairs(ctx.task.sim, ctx)
    assert len(labelled) == 30 == len([json.loads(x) for x in (tmp_path / "pairs.jsonl").read_text().splitlines()])


def test_metrics_of_what_was_paid_by_hand(tmp_path):
    fit = RewardFit(passes=3)
    rollout = build(tmp_path, RuleAnnotator(), fit=fit)
    assert rollout.fit is fit and build(tmp_path, RuleAnnotator(), fit=None).fit == RewardFit()
    assert rollout.metrics()["ai_feedback/reward"] == 0 == rollout.metrics()["ai_feedback/paid"]
    rollout._paid = [1.0, 3.0, 0.0, 0.0]
    assert (rollout.metrics()["ai_feedback/reward"], rollout.metrics()["ai_feedback/paid"]) == (1.0, 0.5)
