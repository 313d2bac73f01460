"""Rewards of judgements, by hand and on rows with masked results."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.methods.agents.reseek import Judge, JudgementRewards, UnknownVerdict, judgement_reward
from tasks.wiki.judged import JudgedWiki
from tasks.wiki.task import Wiki


class Letters:
    """Decodes a letter a token."""

    def decode(self, ids):
        return "".join(map(chr, ids))


CTX = Context(None, None, Letters(), Sampling(), seed=0, iteration=0)


def rewards_of(*parts):
    """Rewards of a row of turns and results in turn, at the ends of the turns."""
    ids = torch.tensor([ord(letter) for part in parts for letter in part])
    mask = torch.tensor([number % 2 == 0 for number, part in enumerate(parts) for _ in part])
    done = Completion({}, ids, torch.zeros(len(ids)), mask, parts[-1])
    episode = Episode(Prompt("wiki/train/0", answer="gi"), 0, 0, [Turn(done)])
    (out,) = JudgementRewards()([episode], CTX)
    column = out.turns[0].completion.extra["token_rewards"]
    ends = torch.tensor([len(part) for part in parts]).cumsum(0) - 1
    assert column.count_nonzero() == column[ends[::2]].count_nonzero() and not column[~mask].any()
    return column[ends[::2]].tolist()


def test_by_hand():
    # right, wrong-accept, right, then the right answer: .3 - .6 + .3 + 1 = 1
    assert sum(judgement_reward(*pair) for pair in ((True, True), (True, False), (False, False))) == pytest.approx(0)
    assert judgement_reward(False, True) + judgement_reward(True, True) == pytest.approx(0)  # wrong-reject, right
    assert JudgementRewards()([], CTX) == []


def test_each_judgement_of_a_new_result_is_rewarded_where_it_is_made():
    turns = ("?ba;", "[ba: kin do]", "!n;", "[]", "?do;", "[do: boss gi]", "!y;", "[]", "gi")
    assert rewards_of(*turns) == pytest.approx([0, 0.3, 0, 0.3, 0])
    assert rewards_of("?ba;", "[ba: kin do]", "!y;", "[]", "do") == pytest.approx([0, -0.6, 0])
    assert rewards_of("?do;", "[do: boss gi]", "!n;", "[]", "do") == pytest.approx([0, -0.3, 0])
    assert rewards_of("?do;", "[do: boss gin]", "hm!y;", "[]", "do") == pytest.approx([0, -0.6, 0])  # a whole word
    assert rewards_of("?do;", "[do: boss gi]", "gi") == [0, 0]
    # a second judgement of the same result earns nothing, and neither does one of none
    assert rewards_of("?do;", "[do: boss gi]", "!y;", "[]", "!y;", "[]", "gi") == pytest.approx([0, 0.3, 0, 0])
    assert rewards_of("!y;", "[]", "gi") == [0, 0]


def test_rewards_reach_back_to_the_search():
    column = torch.tensor([0.0, 0.3, 0, 0.3, 0])
    assert_close(column.flip(0).cumsum(0).flip(0), torch.tensor([0.6, 0.6, 0.3, 0.3, 0.0]))


def test_the_judge_takes_two_verdicts():
    assert Judge().run("y") == "" and Judge().run("n") == ""
    with pytest.raises(UnknownVerdict):
        Judge().run("maybe")


def test_the_expert_judges_every_page():
    plain, judged = Wiki(people=60), JudgedWiki(people=60)
    first, second, answer = plain.script(3)
    assert judged.script(3) == [first, "!n;", second, "!y;", answer]
    assert judged[3] == plain[3] and judged.on("held_out")[0].answer == plain.on("held_out")[0].answer
