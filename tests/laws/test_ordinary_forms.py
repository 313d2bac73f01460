"""A law of all tasks of text: with `extract=answer` the ordinary forms of a right answer score, near misses do not."""

import dataclasses

import pytest

from mmrl.evaluation.task_baselines import demonstrations
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.answers import AnswerTask
from tests.laws.ordinary_forms import near_misses, ordinary_forms
from tests.laws.task_examples import build_task, names, require_option

PROBLEMS = 2
OTHERS = {
    "mixture": "its parts have extractors of their own",
    "text_and_images": "its parts have extractors of their own",
    "programs": "a game, whose roles write other things",
}
"""Options without `extract`, and why."""


@pytest.mark.parametrize("name", sorted(set(names()) - set(OTHERS)))
def test_ordinary_forms_of_a_right_answer_score_and_near_misses_do_not(name):
    require_option(name)
    task = build_task(name)
    assert isinstance(task, AnswerTask)
    task = dataclasses.replace(task, extract="answer")
    prompts = [task[index] for index in range(PROBLEMS)]
    refused, accepted = [], []
    right = demonstrations(task, prompts)
    for prompt, answer in zip(prompts, right):
        forms = ordinary_forms(answer)
        scores = task.scores([scripted_episode(prompt, text) for text in forms.values()])
        refused += [kind for kind, score in zip(forms, scores) if score["exact"] != 1]
        others = [text for text in right if task.score(scripted_episode(prompt, text))["exact"] == 0]
        if "\n" in answer or not others:
            continue
        misses = near_misses(answer, others[0])
        scores = task.scores([scripted_episode(prompt, text) for text in misses.values()])
        accepted += [kind for kind, score in zip(misses, scores) if score["exact"] != 0]
    assert (refused, accepted) == ([], [])
