"""PEARL: the gate and the filter by hand, and which prompts are solved at all."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.methods.vision.pearl import (
    PERCEPTION,
    ChecklistReward,
    DropDecided,
    GatedAdvantage,
    PerceptionFirst,
)
from tasks.scenes.checklist import CheckedCounting, Checklists
from tests.methods.problems.test_ssp import Says
from tests.rollouts.text.test_tools import POLICY

CHECKS = [
    {"question": "red:", "answer": "2"},
    {"question": "blue:", "answer": "0"},
    {"question": "all:", "answer": "2"},
]
NONE = Context(None, None, None, Sampling(), 0, 0)


def prompt(number, checklist=CHECKS):
    message = {"role": "user", "content": "red?"}
    return Prompt(f"p/{number}", (message,), answer="2", info={"checklist": checklist})


def columns(rewards, perceived):
    """Rows of one prompt with two choices each."""
    rows = len(rewards)
    return Batch(
        action_mask=torch.ones(rows, 2, dtype=torch.bool),
        episode_reward=torch.tensor(rewards),
        group=torch.zeros(rows, dtype=torch.long),
        episode=torch.arange(rows),
        perceived=torch.tensor(perceived),
    )


@pytest.mark.parametrize("perceived, expected", [(2 / 3, 0.433013), (0.2, 0.173205)])
def test_advantages_by_hand(perceived, expected):
    """Rewards 1, 0, 1, 0 have sample std 1 / sqrt 3, so .5 sqrt 3 = .866025; times min(perceived, .5). Checklists with
    1 and 0: .5 sqrt 2 = .707107, times .1."""
    batch = columns([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [perceived] * 4 + [-1.0] * 2)
    out = GatedAdvantage(epsilon=0)(batch, NONE)["advantages"]
    assert_close(out[:, 0], torch.tensor([expected, -expected] * 2 + [0.0707107, -0.0707107]), atol=1e-6, rtol=0)
    assert not GatedAdvantage()(columns([0.0] * 3, [-1.0] * 3), NONE)["advantages"].any()


def test_decided_prompts_are_left_out():
    """(mean of solutions, mean of checklists): (1, 1) and (0, 0) go, (1, .4) and (.5, 1) and (no solution, .4) stay."""

    def group(slot, solutions, checks):
        actors = [Episode(prompt(slot), slot, k, reward=reward) for k, reward in enumerate(solutions)]
        return actors + [Episode(prompt(slot), slot, 9 + k, reward=r, role=PERCEPTION) for k, r in enumerate(checks)]

    groups = [([1, 1], [1, 1]), ([0, 0], [0, 0]), ([1, 1], [0.4, 0.4]), ([1, 0], [1, 1]), ([], [0.8, 0]), ([], [0, 0])]
    undecided = DropDecided()([each for slot, rewards in enumerate(groups) for each in group(slot, *rewards)], NONE)
    assert sorted({episode.group for episode in undecided}) == [2, 3, 4]


def test_prompts_whose_checklist_is_all_wrong_are_not_solved():
    """The first prompt's checklists have 2/3 and 0 right, whose mean is 1/3; the second one's none."""
    said = {"red:\nblue:\nall:": ["2\n1\n2", "x"], "no:": ["y", ""], "red?": ["2", "3"]}
    engine = Says(lambda text, before, number: said[text][number])
    prompts = [(4, prompt(0)), (5, prompt(1, [{"question": "no:", "answer": "1"}]))]
    ctx = Context(None, engine, POLICY, Sampling(max_tokens=16), 0, 0, group_size=2)
    episodes = PerceptionFirst("{questions}").collect(prompts, ctx)
    roles = [(episode.group, episode.role) for episode in episodes]
    assert roles == [(4, PERCEPTION)] * 2 + [(4, "actor")] * 2 + [(5, PERCEPTION)] * 2
    assert [e.info["perceived"] for e in episodes if e.role == PERCEPTION] == [pytest.approx(2 / 3), 0.0, 0.0, 0.0]
    shares = [float(episode.turns[0].completion.extra["perceived"]) for episode in episodes]
    assert shares == pytest.approx([-1, -1, 1 / 3, 1 / 3, -1, -1])
    assert [e.info.get("counts") for e in episodes[::2]] == [
        {"perception/asked": 1, "perception/opened": 1}, None, {"perception/asked": 1, "perception/opened": 0}
    ]  # fmt: skip
    solved = [e for e in episodes if e.role == "actor"]
    for episode in solved:
        episode.scores = {"exact": float(episode.output == "2")}
    assert ChecklistReward({"exact": 1.0})([episodes[0], *solved]) == [pytest.approx(2 / 3), 1.0, 0.0]
    assert [e.sample_index for e in episodes[:4]] == [2, 3, 0, 1]  # none is twice in a group


def test_a_row_without_a_checklist_and_a_template_without_questions_are_refused():
    with pytest.raises(ValueError, match="p/0: 'checklist' must list objects with a question and an answer, got None"):
        PerceptionFirst().ask(prompt(0, None))
    with pytest.raises(ValueError, match=r"lacks \{questions\}"):
        PerceptionFirst("Look.")


def test_the_start_has_seen_the_checklists_as_they_are_asked():
    options = {
        "size": 32,
        "sides": [0.25, 0.25],
        "colours": ["red", "blue"],
        "describe": "colour",
        "question": "{}?",
        "count": 40,
    }
    task, checklists = CheckedCounting(**options), Checklists(**options)
    for index in range(40):
        asked = PerceptionFirst("{questions}").ask(task[index])
        assert asked.messages == checklists[index].messages
        answer = checklists.demonstrate(index)
        assert PerceptionFirst().share_right(answer, task[index]) == 1
        assert checklists.verify(answer, checklists[index])["exact"] == 1
        counts = [int(line) for line in answer.split("\n")]
        assert sum(counts) == len(task.problem(index).scene.shapes)
