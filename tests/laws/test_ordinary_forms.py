"""A law of all tasks of text: with `extract=answer` the ordinary forms of a right answer score, near misses do not."""

import dataclasses
import re

import pytest

from mmrl.core.types import Prompt
from mmrl.evaluation.task_baselines import demonstrations
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.answers import AnswerTask
from tasks.arithmetic.task import Arithmetic
from tests.laws.hostile_answers import list_near_misses
from tests.laws.ordinary_forms import inner_forms, near_misses, ordinary_forms
from tests.laws.task_examples import build_task, names, require_option

PROBLEMS = 2
OTHERS = {
    "mixture": "its parts have extractors of their own",
    "text_and_images": "its parts have extractors of their own",
    "programs": "a game, whose roles write other things",
}
"""Options without `extract`, and why."""


def build_tasks(name: str) -> tuple[AnswerTask, AnswerTask, list[Prompt]]:
    """The task of an option as it is, the same with extract="answer", and prompts of the latter."""
    require_option(name)
    plain = build_task(name)
    assert isinstance(plain, AnswerTask)
    task = dataclasses.replace(plain, extract="answer")
    return plain, task, [task[index] for index in range(PROBLEMS)]


@pytest.mark.parametrize("name", sorted(set(names()) - set(OTHERS)))
def test_ordinary_forms_of_a_right_answer_score_and_near_misses_do_not(name):
    _, task, prompts = build_tasks(name)
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


@pytest.mark.parametrize("name", sorted(set(names()) - set(OTHERS)))
def test_separators_and_capitals_are_free_and_near_misses_are_as_wrong_as_without(name):
    plain, task, prompts = build_tasks(name)
    refused, accepted, count = [], [], 0
    for prompt, right in zip(prompts, demonstrations(task, prompts)):
        forms, near = inner_forms(right), list_near_misses(right)
        scores = task.scores([scripted_episode(prompt, text) for text in forms])
        refused += [form for form, score in zip(forms, scores) if score["exact"] != 1]
        before, after = (each.scores([scripted_episode(prompt, text) for text in near]) for each in (plain, task))
        count += len(near)
        accepted += [
            (right, text)
            for text, one, other in zip(near, before, after)
            if other["exact"] > one["exact"] and read_values(text) != read_values(right)
        ]
    assert (refused, accepted) == ([], []) and count > 0


def read_values(text):
    """Numbers of the last line without zeros and signs of zero, and its words."""
    line = text.rpartition("\n")[2]
    return [float(value) + 0 if re.search("[0-9]", value) else value for value in re.findall(r"-?[0-9.]+|[a-z]+", line)]


@pytest.mark.parametrize("name", sorted(set(names()) - set(OTHERS)))
def test_a_prompt_states_the_form_of_an_answer_where_it_is_asked_to(name):
    require_option(name)
    task = build_task(name)
    assert isinstance(task, AnswerTask)
    task = dataclasses.replace(task, extract="answer")
    stated = dataclasses.replace(task, state_form=True)
    answers = [task.on("train").demonstrate(index) for index in range(2)]
    for split in ("train", "held_out"):
        part, plain = stated.on(split), task.on(split)
        for index in range(PROBLEMS):
            shown, before = read_user(part[index]), read_user(plain[index])
            own_is_shown = split == "train" and index == 0
            assert shown.startswith(before) and shown.endswith(answers[1] if own_is_shown else answers[0])
            assert "in the form of this one, which answers another question" in shown[len(before) :]
            assert (part[index].answer, part[index].key) == (plain[index].answer, plain[index].key)


def read_user(prompt):
    """Text of the last turn."""
    content = prompt.messages[-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def test_without_an_example_the_extractor_states_the_form():
    class Silent(Arithmetic):
        def demonstrate(self, index):
            raise NotImplementedError

    assert read_user(Silent(extract="boxed", state_form=True)[0]).endswith(
        "End with your answer in this form:\n\\boxed{...}"
    )
    with pytest.raises(ValueError, match=r"state_form has no right answer .* set task\.extract"):
        Silent(state_form=True)[0]
    with pytest.raises(ValueError, match="state_form must be true or false, got 'yes'"):
        Arithmetic(state_form="yes")
