"""Rewards of MR-RLVR's two verifiers by hand, and the stages of its recipes."""

import pytest
from hydra.utils import instantiate

from mmrl.config.compose import compose
from mmrl.core.types import Prompt
from mmrl.rewards.scoring import score
from tasks.graphs import GraphSteps
from tasks.graphs.data import Graph, Node
from tests.composed_words import compose_words
from tests.tasks.replies import reply

CHAIN = Graph((Node("a", (3,)), Node("b", ("a", 2), "+"), Node("c", ("b", 1), "*"), Node("d", ("c", 4), "-")), "d")
SHOWN = ["b=a+2=5", "d=c-4=1", "a=3", "c=b*1=5"]  # the step at place 2 comes first, then 0, 3 and 1
ORDER = Prompt("graph_steps/train/0", answer=[2, 0, 3, 1], info={"graph": CHAIN, "steps": SHOWN})
FILL = Prompt("graph_steps/train/1", answer=[3, 5, 1], info={"graph": CHAIN, "steps": SHOWN})


def plain(run):
    return compose_words((run,))


@pytest.mark.parametrize(
    ("task", "prompt", "text", "reward"),
    [
        (GraphSteps(exercise="order", depth=(4, 4)), ORDER, "2 0 3 1", 1.0),
        (GraphSteps(exercise="order", depth=(4, 4)), ORDER, "2 3 0 1", 0.5),  # places 0 and 3 of four
        (GraphSteps(exercise="order", depth=(4, 4)), ORDER, "1 3 0 2", 0.0),  # backwards: no place is right
        (GraphSteps(exercise="order", depth=(4, 4)), ORDER, "2 0 3", 0.0),  # too short
        (GraphSteps(exercise="order", depth=(4, 4)), ORDER, "two", 0.0),
        (GraphSteps(exercise="fill", depth=(4, 4), gaps=3), FILL, "3 5 1", 1.0),
        (GraphSteps(exercise="fill", depth=(4, 4), gaps=3), FILL, "3 4 1", 2 / 3),  # hits 1, 0, 1 of three values
        (GraphSteps(exercise="fill", depth=(4, 4), gaps=3), FILL, "3 5", 0.0),
        (GraphSteps(exercise="fill", depth=(4, 4), gaps=3), FILL, "", 0.0),
    ],
)
def test_exercises_are_paid_by_the_share_that_is_right(task, prompt, text, reward):
    one = reply(prompt, text)
    score([one], task, instantiate(plain("start=mr_rlvr_exercises").data.reward, _convert_="all"))
    assert one.reward == pytest.approx(reward)


def test_an_exercise_without_hidden_values_is_refused():
    with pytest.raises(ValueError, match="gaps"):
        GraphSteps(exercise="fill", gaps=0)


def test_the_first_stage_has_both_kinds_one_to_one():
    task = instantiate(plain("start=mr_rlvr_exercises").data.task, _convert_="all")
    kinds = [task[index].info["task"] for index in range(len(task))]
    assert {kind: kinds.count(kind) for kind in kinds} == {"order": 2000, "fill": 2000}


def test_the_second_stage_is_paid_for_the_answer_alone_and_comes_after_the_first():
    data, start = plain("recipe=mr_rlvr").data, plain("recipe=mr_rlvr").trainer.callbacks.warm_start
    assert dict(data.reward.weights) == {"exact": 1.0}
    assert list(start.stages) == ["sft", "exercises"]
    stage = compose([*start.common, *start.stages["exercises"], "run_dir=same"])
    assert stage.data.task._target_.endswith("Mixture") and stage.trainer.callbacks.warm_start.stages is None
    assert {key: data.task[key] for key in ("depth", "operations", "distractors")} == {
        key: stage.data.task.parts.order[key] for key in ("depth", "operations", "distractors")
    }
