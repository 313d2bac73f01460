"""RS-EoT: rewards of boxes and statements by hand, and the two stages of its recipe."""

import pytest
from hydra.utils import instantiate

from mmrl.core.types import Prompt
from mmrl.methods.vision.rs_eot import evidence
from mmrl.rewards.boxes import iou
from tasks.scenes import Statements
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import at
from tests.tasks.replies import reply


def test_rewards_by_hand():
    """Boxes that share 1 of 7 units; of four judgements one is wrong."""
    assert evidence(iou=iou((0, 0, 2, 2), (1, 1, 3, 3))) == pytest.approx(1 / 7)
    assert (evidence(iou=0.0), evidence(iou=1.0)) == (0, 1)
    task = Statements()
    gold = Prompt("p", answer=(1, 0, 1, 0))
    shares = [task.verify(text, gold)["share"] for text in ("yes no no no", "no yes no yes", "yes no yes no", "yes")]
    assert [evidence(share=share) for share in shares] == [0.75, 0, 1, 0]
    for scores in ({}, {"iou": 1.0, "share": 1.0}):
        with pytest.raises(ValueError, match="evidence needs one of the scores"):
            evidence(**scores)


def test_grounding_comes_before_statements_and_both_are_paid():
    data = compose_words(("recipe=rs_eot",)).data
    task, curriculum = instantiate(data.task, _convert_="all"), instantiate(data.curriculum)
    reward = instantiate(data.reward)
    reward.weights = {name: weight for name, weight in data.reward.weights.items() if weight is not None}
    for iteration, kind in ((0, "grounding"), (9, "grounding"), (10, "statements"), (29, "statements")):
        for index in curriculum.select(4, at(iteration, task)):
            prompt = task[index]
            assert prompt.info["task"] == kind
            for text, value in ((task.demonstrate(index), 2.0), ("?", 0.0)):
                episode = reply(prompt, text)
                episode.scores = task.score(episode)
                episode.scores |= reward.scores([episode])[0]
                assert reward([episode]) == [value]
