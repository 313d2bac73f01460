"""AI feedback: rules with noise, language models that are asked, and the pairs of captions that they label."""

import json

import numpy as np
import pytest

from mmrl.core.errors import ConfigError
from mmrl.methods.goals.ai_feedback.annotators import EQUAL, FIRST, SECOND, CaptionPair, JudgeAnnotator, RuleAnnotator
from mmrl.methods.goals.ai_feedback.pairs import (
    CaptionReader,
    LabelledPair,
    collect_captions,
    draw_pairs,
    read_labelled,
    write_pairs,
)
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.engine import EngineJudge
from mmrl.rewards.judges.server import ServerJudge
from sims.craft.progress import RecipeProgress, count_lacking
from sims.point import PointSim
from tests.rewards.judges.stub_server import StubServer
from tests.sims.craft.test_world import COLLECT, LEFT, PLANK, UP, place
from tests.sims.craft.worlds import default, tiny

RNG = np.random.default_rng(0)
HOLD = "hold [^.]*"


def pair(first: float, second: float) -> CaptionPair:
    return CaptionPair("hold nothing", "hold 1 log", (first, second))


def test_a_rule_without_noise_says_the_true_order():
    pairs = [pair(-3, -1), pair(-1, -3), pair(-2, -2)]
    assert RuleAnnotator(0.0).label(pairs, RNG) == [SECOND, FIRST, EQUAL] == [each.true_label() for each in pairs]
    assert RuleAnnotator(1.0).label(pairs[:2], RNG) == [FIRST, SECOND]
    with pytest.raises(ConfigError, match=r"rollout\.progress is null; name a rule"):
        RuleAnnotator().label([CaptionPair("a", "b")], RNG)
    with pytest.raises(ValueError, match=r"rollout\.annotator\.noise"):
        RuleAnnotator(1.5)


def test_noise_is_the_share_of_wrong_labels():
    """4,000 pairs: 4 standard errors of a share of 0.3 are 0.029; equal ones become either of the two."""
    labels = RuleAnnotator(0.3).label([pair(-1, -2)] * 4000, np.random.default_rng(1))
    assert set(labels) == {FIRST, SECOND} and abs(labels.count(SECOND) / 4000 - 0.3) < 0.03
    labels = RuleAnnotator(0.3, unsure=0.2).label([pair(-1, -1)] * 4000, np.random.default_rng(1))
    assert abs(labels.count(None) / 4000 - 0.2) < 0.03 and abs(labels.count(EQUAL) / 4000 - 0.8 * 0.7) < 0.032
    assert abs(labels.count(FIRST) / 4000 - 0.8 * 0.15) < 0.021 and labels.count(SECOND) > 0


@pytest.mark.parametrize("word, label", [("1", 1.0), ("2", 0.0), ("Equal", 0.5), ("unsure", None), ("both", "?")])
def test_a_language_model_is_asked_about_goal_and_captions(word, label):
    with StubServer(lambda text, mark: f"Hm.\nbetter-{mark}: {word}") as stub:
        judge = ServerJudge(url=stub.url, model="m")
        (answer,) = JudgeAnnotator(judge, "make a stone pickaxe").label([CaptionPair("hold 1 log", "hold 2 log")], RNG)
    content = stub.requests[0]["messages"][0]["content"]
    assert all(text in content for text in ("make a stone pickaxe", "hold 1 log", "hold 2 log")) and "unsure" in content
    if label == "?":
        assert isinstance(answer, NoAnswer) and "not 1, 2, equal or unsure" in answer.reason
    else:
        assert answer == label


def test_a_model_of_the_run_is_refused():
    with pytest.raises(ValueError, match=r"EngineJudge is a model of the run.*ServerJudge"):
        JudgeAnnotator(EngineJudge(), "goal")


def test_progress_by_hand():
    """A stone takes a table, 3 planks, which are two makings of 2 from a log each: 2 + 2 + 1 + 1 = 6 pieces."""
    env = tiny().make(1)
    env.reset(seed=[0])
    world = env.envs[0]
    place(world)
    lacking = [count_lacking(world)]
    for action in (UP, COLLECT, PLANK, LEFT, COLLECT):
        world.step(action)
        lacking.append(count_lacking(world))
    assert lacking == [6, 6, 5, 4, 4, 3] and RecipeProgress().measure(env).tolist() == [-3]
    world.had[:] = True
    assert count_lacking(world) == 0
    # 5 wood, 5 planks, 2 sticks, a table, a wood pickaxe, a stone and the stone pickaxe, as the tree counts them
    world = default().make_world()
    world.reset(0)
    assert count_lacking(world) == 16 == sum(world.tree.requirements("stone_pickaxe").values())


def test_progress_is_the_experts():
    """Whatever is held, the expert's collections and makings until the target are as many as are lacking."""
    env, rng = default(max_steps=10**6).make(1), np.random.default_rng(0)
    sim = default(max_steps=10**6)
    for seed in range(4):
        env.reset(seed=[seed])
        for _ in range(30 * seed):
            env.step(rng.integers(13, size=1))
        lacking, gained = count_lacking(env.envs[0]), 0
        for _ in range(400):
            if env.over[0]:
                break
            gained += int(env.step(sim.expert(env))[4]["gained"][0] >= 0)
        assert env.envs[0].done and gained == lacking > 0


def test_captions_of_players_of_mixed_strength():
    sim, reader = default(), CaptionReader(HOLD)
    played = [
        collect_captions(sim, [1, 2, 3, 4], fractions, 200, reader, RecipeProgress(), np.random.default_rng(0))
        for fractions in ([1.0], [1.0, 0.0], [1.0, 0.0])
    ]
    assert played[1] == played[2] and played[0]["hold nothing"] == -16
    assert max(played[0].values()) < -4 and max(played[1].values()) == 0  # the expert has the target
    assert all(caption.startswith("hold ") and "row" not in caption for caption in played[1])
    short = collect_captions(sim, [1], [0.0], 3, reader, None, np.random.default_rng(0))
    assert len(short) <= 4 and set(short.values()) == {None}


def test_pairs_are_of_two_captions_uniformly():
    captions = {"a": -2.0, "b": -1.0, "c": -1.0}
    pairs = draw_pairs(captions, 6000, np.random.default_rng(0))
    counts = {}
    for each in pairs:
        assert each.progress == (captions[each.first], captions[each.second])
        counts[each.first, each.second] = counts.get((each.first, each.second), 0) + 1
    assert len(counts) == 6 and all(abs(count - 1000) < 120 for count in counts.values())  # 4 deviations are 115
    assert draw_pairs({"a": None, "b": -1.0}, 1, RNG)[0].progress is None
    with pytest.raises(ConfigError, match=r"1 different caption.*raise rollout\.episodes"):
        draw_pairs({"a": 0.0}, 5, RNG)


def test_labelled_pairs_on_disk(tmp_path):
    pairs = [LabelledPair("a", "b", 1.0, 0.0), LabelledPair("a", "c", None, 0.5), LabelledPair("b", "c", 0.5)]
    write_pairs(tmp_path / "start" / "pairs.jsonl", pairs)
    assert read_labelled(tmp_path / "start" / "pairs.jsonl") == pairs
    for line in ('{"first": "a", "second": "b"}', '{"first": "a", "second": "b", "label": 2}', "x", "[1]"):
        (tmp_path / "bad.jsonl").write_text(json.dumps(vars(pairs[0])) + "\n" + line + "\n")
        with pytest.raises(ConfigError, match=r"bad\.jsonl line 2: .*no labelled pair"):
            read_labelled(tmp_path / "bad.jsonl")
    (tmp_path / "bad.jsonl").write_text("")
    with pytest.raises(ConfigError, match="has no line"):
        read_labelled(tmp_path / "bad.jsonl")


def test_captions_that_cannot_be_read():
    env = default().make(1)
    env.reset(seed=[0])
    assert CaptionReader().read(env) == env.captions() and CaptionReader(HOLD).read(env) == ["hold nothing"]
    with pytest.raises(ConfigError, match=r"rollout\.caption='gold' does not match the caption 'You stand"):
        CaptionReader("gold").read(env)
    with pytest.raises(ConfigError, match=r"do not have; take sim=craft"):
        CaptionReader().read(PointSim().make(1))
    with pytest.raises(ValueError, match=r"rollout\.caption='\(' is no regular expression"):
        CaptionReader("(")
