"""EvoPresent: thresholded rewards of slides by hand, and revisions that are taken back."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmrl.core.types import Completion, Context, Prompt, Sampling
from mmrl.methods.vision.evo_present import RevisionGain, RevisionLoop, RevisionReward, choose_version, read_number
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.arithmetic.task import Arithmetic
from tasks.drawings.slides import DEFECTS, Slide, Slides, is_near, read_defects, read_score, set_f1
from tests.composed_words import compose_words

BARS = ((12, 0), (14, 20), (16, 40), (18, 60))

# ---------------------------------------------------------------- rewards


def test_f1_by_hand():
    assert set_f1({1, 2}, {2, 3}) == 0.5  # 2 * 1 / 4
    assert set_f1({1, 2, 3}, {2, 3}) == pytest.approx(0.8)  # 2 * 2 / 5
    assert set_f1(set(), set()) == 1 and set_f1({1}, set()) == 0


def test_errors_of_scores_by_hand():
    assert is_near(7.2, 7.0, 0.25) and not is_near(7.25, 7.0, 0.25)
    texts = ("7", "7.25", "10", "1", "0.9", "10.1", "", "seven", "-7", "7.", "1e1")
    assert [read_score(text) for text in texts] == [7, 7.25, 10, 1, *[None] * 7]


@pytest.mark.parametrize(
    "text, found",
    [("o", {"o"}), ("c o", {"o", "c"}), ("o o", {"o"}), ("none", set()), ("", None), ("x", None), ("o,c", None)],
)
def test_defects_are_read(text, found):
    assert read_defects(text) == found


def prompt_of(task, *defects):
    """The prompt of a slide with these defects, beside one without in a comparison."""
    slide = Slide(3, BARS, {name: 1 for name in defects})
    other = (Slide(3, BARS),) if task.kind == "compare" else ()
    return task.write_prompt((slide, *other), "slides/train/0")


def graded(task, answer, *defects):
    scores = task.verify(answer, prompt_of(task, *defects))
    return scores["exact"], scores["format"]


def test_verdicts_by_hand():
    score, diagnose, compare = (Slides(kind=kind) for kind in ("score", "diagnose", "compare"))
    assert prompt_of(score, "overlap").answer == "7" and prompt_of(score, *DEFECTS).answer == "1"
    assert graded(score, "7.2", "overlap") == (1, 1) and graded(score, "7.25", "overlap") == (0, 1)
    assert graded(score, "good", "overlap") == (0, 0)
    assert prompt_of(diagnose, "contrast", "overlap").answer == "o c" and prompt_of(diagnose).answer == "none"
    assert graded(diagnose, "m c", "overlap", "contrast") == (0, 1)  # an F1 of .5 is not above .5
    assert graded(diagnose, "o m c", "overlap", "contrast") == (1, 1)  # .8
    assert graded(diagnose, "none") == (1, 1) and graded(diagnose, "o") == (0, 1)
    assert graded(compare, "2", "overlap") == (1, 1) and graded(compare, "1", "overlap") == (0, 1)
    assert graded(compare, "3", "overlap") == (0, 0)


def test_each_defect_changes_its_bar():
    clean = Slide(3, BARS).render()
    assert clean.shape == (32, 32, 3) and (clean[3:7, 3:15] == 0).all() and (clean[10:14, 3:17] == 20).all()
    moved = Slide(3, BARS, {"overlap": 1}).render()
    assert (moved[5:9, 3:17] == 20).all() and (moved[3:5, 3:15] == 0).all() and (moved[10:14] == 255).all()
    shifted = Slide(3, BARS, {"misaligned": 2}).render()
    assert (shifted[17:21, 8:24] == 40).all() and (shifted[17:21, :8] == 255).all()
    assert (Slide(3, BARS, {"contrast": 3}).render()[24:28, 3:21] == 225).all()


@pytest.mark.parametrize("kind", ["score", "diagnose", "compare"])
def test_demonstrations_are_right_and_no_layout_is_in_both_splits(kind):
    tasks = Slides(kind=kind), Slides(kind=kind, split="held_out")
    keys = []
    for task in tasks:
        keys.append({task.split_key(task.problem(i)) for i in range(100)})
        for index in range(30):
            episode = scripted_episode(task[index], task.demonstrate(index))
            assert task.score(episode) == {"exact": 1.0, "format": 1.0}
            assert len(task[index].images) == (2 if kind == "compare" else 1)
    assert not keys[0] & keys[1]
    answers = {tasks[0][i].answer for i in range(60)}
    assert {"score": {"10", "7", "4", "1"}, "compare": {"1", "2"}}.get(kind, answers) == answers


def test_kinds_are_mixed_and_the_format_counts():
    cfg = compose_words(("recipe=evo_present",))
    assert [part.kind for part in cfg.data.task.parts.values()] == ["score", "diagnose", "compare"]
    assert dict(cfg.data.reward.weights) == {"exact": 1.0, "format": 1.0}
    assert cfg.model.objective.coefficients.kl == 0.001


# ---------------------------------------------------------------- revisions


def test_a_recipe_evaluates_revisions_of_drafts():
    evaluation = compose_words(("recipe=evo_present_revisions",)).data.evaluation
    assert evaluation.rollout == {"_target_": "mmrl.methods.vision.evo_present.RevisionLoop", "rounds": 3}
    assert [name for name, part in evaluation.evaluators.items() if part is not None] == ["revisions"]


def test_versions_with_lower_scores_are_taken_back():
    assert choose_version([6, 7, 5]) == 1
    assert [choose_version([6, 7, 5, 6.9, 7.5][:n]) for n in range(1, 6)] == [0, 1, 1, 1, 4]
    assert choose_version([5, 5]) == 1  # an equal one is no loss
    assert [read_number(text) for text in ("7.5", "ten", "nan", "11", "-1")] == [7.5, 0, 0, 0, 0]


class Counted(Slides):
    """Revisions are numbered, and worth that number."""

    def revise(self, prompt, rng):
        number = prompt.info["quality"] + 1
        return Prompt(prompt.key, prompt.messages, prompt.images, prompt.answer, {"quality": number})


class Judge:
    """An engine that writes scores in order."""

    def __init__(self, *texts):
        self.texts = list(texts)

    def sample(self, requests, sampling):
        one = torch.ones(1)
        return [Completion({}, one.long(), -one, one.bool(), self.texts.pop(0)) for _ in requests]


def loop(*texts, prompts=1, **options):
    task, engine = Counted(), Judge(*texts)
    start = [
        (slot, Prompt(f"slides/train/{slot}", task[slot].messages, info={"quality": 0})) for slot in range(prompts)
    ]
    ctx = Context(task, engine, None, Sampling(), seed=0, iteration=0)
    out = RevisionLoop(**options).collect(start, ctx)
    assert not engine.texts
    return out


def test_the_loop_goes_on_from_the_working_version():
    # 6, 7, 5 (taken back), 6: the fourth version is again a revision of the second, so that it is worth 2 and not 3
    (episode,) = loop("6", "7", "5", "6", rounds=3)
    assert episode.info["qualities"] == [0, 1, 2, 2] and episode.info["working"] == 1 and len(episode.turns) == 4
    first, second = loop("8", "x", "7", "9", prompts=2, rounds=3)  # the first draft is good enough
    assert first.info == {"qualities": [0], "working": 0}
    assert second.info == {"qualities": [0, 1, 2], "working": 2}
    assert RevisionGain()([first, second, episode]) == {
        "draft": 0, "chosen": 1.0, "best": pytest.approx(4 / 3), "gain": 1.0, "n": 3.0, "errors": 0.0,
    }  # fmt: skip


def test_the_loop_is_paid_by_the_gain_of_its_final_version_and_by_scores_that_are_near():
    # qualities 0, 1, 2, 2, of which the second version is final: .1; scores 6, 7, 5, 6 are all far
    # qualities 0, 1, 2 with scores .2, .9, 2.5: two of three are within .25, and the third version is final
    first, second = loop("6", "7", "5", "6", rounds=3)[0], loop("0.2", "0.9", "2.5", rounds=2)[0]
    reward = RevisionReward({"gain": 1.0, "near": 0.5})
    for episode, gain, near in ((first, 0.1, 0.0), (second, 0.2, 2 / 3)):
        episode.scores = reward.scores([episode])[0]
        assert episode.scores == {"gain": pytest.approx(gain), "near": pytest.approx(near)}
        assert reward([episode]) == [pytest.approx(gain + 0.5 * near)]
    (exact,) = loop("0.25", "9", rounds=1)  # the difference has to be smaller
    assert reward.scores([exact])[0]["near"] == 0
    with pytest.raises(KeyError, match="play it with RevisionLoop"):
        reward.scores([SimpleNamespace(info={}, turns=[])])
    with pytest.raises(ValueError, match="within"):
        RevisionReward({"gain": 1.0}, within=0.0)


def test_revisions_of_slides_repair_more_than_they_spoil():
    task, rng = Slides(), np.random.default_rng(0)
    prompt = prompt_of(task, "overlap", "contrast")
    changes = [task.revise(prompt, rng).info["quality"] - prompt.info["quality"] for _ in range(200)]
    assert set(changes) == {-3, 3} and 120 < changes.count(3) < 160  # .7 of 200
    assert task.revise(prompt_of(task), rng).info["quality"] == 7
    assert task.revise(prompt_of(task, *DEFECTS), rng).info["quality"] == 4


def test_refusals():
    with pytest.raises(ValueError, match=r"rollout\.rounds must be at least 1"):
        RevisionLoop(rounds=0)
    ctx = Context(Arithmetic(), None, None, Sampling(), seed=0, iteration=0)
    with pytest.raises(ValueError, match="'arithmetic' revises nothing"):
        RevisionLoop().collect([], ctx)
    with pytest.raises(KeyError, match="play it with RevisionLoop"):
        RevisionGain()([SimpleNamespace(info={}, ended="done")])
