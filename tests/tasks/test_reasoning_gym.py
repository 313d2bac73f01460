"""Problems of reasoning-gym: every generator, its own scorer, and splits that share no question."""

import pickle

import pytest

from mmrl.types import Completion, Episode, Turn
from tasks.reasoning_gym.task import ReasoningGym

pytest.importorskip("reasoning_gym")
from reasoning_gym.factory import DATASETS

SLOW = {"knight_swap", "puzzle24", "quantum_lock", "zebra_puzzles"}  # seconds for a problem
WITHOUT_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def reply(task, index, text):
    completion = Completion(None, None, None, None, text, "done", 0)
    return task.score(Episode(task[index], 0, 0, [Turn(completion)]))


@pytest.mark.parametrize("dataset", sorted(set(DATASETS) - SLOW - {"composite"}))
def test_a_generator_accepts_its_own_answer_and_no_empty_one(dataset):
    task = ReasoningGym(dataset, size=4, held_out=2)
    for prompt in (task[0], task[3], task.on("held_out")[1]):
        assert task.verify("", prompt)["exact"] == 0
        if dataset in WITHOUT_ANSWER:
            assert prompt.answer is None
        else:
            assert task.verify(prompt.answer, prompt) == {"exact": 1, "score": 1}


def test_no_question_is_in_both_splits():
    """Two digits and an operation: 200 questions, drawn thousands of times."""
    task = ReasoningGym("chain_sum", SUMS, size=500, held_out=60)
    train = {task[i].messages[0]["content"] for i in range(len(task))}
    held_out = {p.messages[0]["content"] for p in map(task.on("held_out").__getitem__, range(60))}
    assert len(train) > 90 and len(held_out) > 30 and not train & held_out


def test_a_generator_with_too_few_problems_is_refused():
    task = ReasoningGym("chain_sum", {**SUMS, "min_terms": 1, "max_terms": 1}, size=20, held_out=500)
    with pytest.raises(ValueError, match=r"all 20 training problems of 'chain_sum' are held out; lower task\.held_out"):
        task[0]


def test_problems_are_functions_of_seed_and_index():
    first, again, other = (ReasoningGym("gcd", seed=seed) for seed in (0, 0, 1))
    assert [first[i] for i in range(9)] == [again[i] for i in range(9)]
    assert [first[i].answer for i in range(9)] != [other[i].answer for i in range(9)]
    assert pickle.loads(pickle.dumps(first[3])) == first[3]


def test_the_answer_is_extracted_and_scored():
    task = ReasoningGym("chain_sum", SUMS, template="{question}\nThink first.", extract="last_number")
    assert task[0].messages[0]["content"].endswith("=\nThink first.")
    assert task.demonstrate(0) == task[0].answer
    assert reply(task, 0, f"12 and 7, so {task[0].answer}.") == {"format": 1, "exact": 1, "score": 1}
    assert reply(task, 0, "no idea") == {"format": 0, "exact": 0, "score": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "chain_sums"}, r"'chain_sums' is no generator of reasoning-gym; did you mean 'chain_sum'"),
        ({"dataset": "gcd", "parameters": {"no_such": 1}}, r"task\.parameters=.*no_such.* refused by .*'gcd'"),
        ({"dataset": "gcd", "parameters": {"min_numbers": 0}}, r"refused by the generator 'gcd': min_numbers"),
        ({"dataset": "composite"}, r"refused by the generator 'composite'"),
        ({"dataset": "gcd", "size": 0}, r"size and held_out must be at least 1, got 0"),
        ({"dataset": "gcd", "split": "test"}, r"splits 'train' and 'held_out', not 'test'"),
        ({"dataset": "gcd", "template": "Why?"}, r"template must hold {question} once"),
        ({"dataset": "gcd", "extract": "boxes"}, r"task\.extract='boxes' is no extractor"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ReasoningGym(**arguments)[0]


def test_a_generator_without_answers_has_no_demonstrations():
    with pytest.raises(ValueError, match="'rush_hour' checks answers and has none of its own"):
        ReasoningGym("rush_hour", size=4, held_out=2).demonstrate(0)
