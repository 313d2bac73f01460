"""Problems of reasoning-gym: every generator, its own scorer, and splits that share no question."""

import pickle
import re

import pytest

from tasks.reasoning_gym.scorer import score_answer
from tasks.reasoning_gym.strictness import rewrite_answer
from tasks.reasoning_gym.task import ReasoningGym
from tests.tasks.replies import reply
from tests.tasks.text.puzzle_solvers import SOLVERS

pytest.importorskip("reasoning_gym")
from reasoning_gym.factory import DATASETS

OTHERS = {"composite"}  # of other generators: refused by the generator itself, tested below
PARAMETERS = {"rush_hour": {"max_moves": 12}}  # boards that are solved in milliseconds
ANY_CONSTANT = {"simple_integration", "intermediate_integration"}  # "1 - 2*x + C" has the same derivative
SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


NONSENSE = (" ", "?", "nonsense", "NaN", "nan", "[]", "{}", '{"a": 1}', "[[1]]", "null", "x", "6*4*1*1", "1e99999")
NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


CODE = (
    "__import__('os').system('touch {}')",
    '[__import__("os").system("touch {}")]',
    "open('{}', 'w')",
    "sin.__class__.__base__.__subclasses__()[0] or open('{}', 'w')",
    "sympify(\"open('{}', 'w')\")",
    "[open('{}', 'w') for _ in '1']",
    "{{'a': open('{}', 'w')}}",
)


@pytest.mark.parametrize("dataset", sorted(set(DATASETS) - OTHERS))
def test_a_generator_accepts_its_own_answer_and_neither_nonsense_nor_code(dataset, tmp_path):
    task = ReasoningGym(dataset, PARAMETERS.get(dataset, {}), size=4, held_out=2)
    for prompt in (task[0], task[3], task.on("held_out")[1]):
        right = prompt.answer or "0"
        changed = [NUMBER.sub("NaN", right), NUMBER.sub("[]", right), re.sub(r"\S", "_", right)]
        code = [text.format(tmp_path / "ran") for text in CODE]
        answers = [answer for answer in ("", *NONSENSE, *changed, *code) if answer != right]
        scores = task.scores([reply(prompt, answer) for answer in answers])
        assert [answer for answer, found in zip(answers, scores) if found["exact"]] == []
        assert all(0 <= found["score"] < 1 for found in scores)
        assert not (tmp_path / "ran").exists()
        if dataset in SOLVERS:
            assert prompt.answer is None
        else:
            assert task.verify(prompt.answer, prompt) == {"exact": 1, "score": 1}


def write_more(right, other):
    """Texts that hold a right answer and more."""
    return {
        *(f"{right} {other}", f"{other} {right}", f"{right} or {other}", f"{right}\n{other}", f"{other}\n{right}"),
        *(f"{right}, {other}", f"{right} {right}", f"not {right}", f"The answer is {right}", f"I think so.\n{right}"),
        *(f"{right} is right", f"{right}<|im_end|>{other}", f"{right}\nI think so.", f"1 {right}", f"{right} 1"),
        *(f"{right}; {other}", f"Let me see: {other}. So {right}"),
        *(f"{right}/{other}", f"{right}x", f"x{right}", f"{right}_1", f"!={right}", f"1-{right}", f"{other}/{right}"),
    }


@pytest.mark.parametrize("dataset", sorted(set(DATASETS) - OTHERS))
def test_a_right_answer_with_more_beside_it_is_not_right(dataset):
    task = ReasoningGym(dataset, PARAMETERS.get(dataset, {}), size=4, held_out=2)
    entries = [task._generator[number] for number in range(6)]
    answers = [entry["answer"] or SOLVERS[dataset](entry["metadata"]) for entry in entries]
    for entry, right in zip(entries, answers):
        assert score_answer(task._source, right, entry).score == 1
        other = next((one for one in answers if one != right), "x")
        more = {text for text in write_more(right, other) if text.strip() != right}
        if dataset in ANY_CONSTANT:
            more -= {f"1 {right}", f"{right} 1"}
        assert [text for text in more if score_answer(task._source, text, entry).score >= 1] == []


def test_a_piece_of_rush_hour_is_named_as_the_question_shows_it():
    board = "oooooooooooooAAooooooooooooooooCCooo"  # without B
    entry = {"answer": None, "metadata": {"board_config": board}}
    assert rewrite_answer("rush_hour", "A+3 C-1 B+1", entry) == "A+3 B-1 ?+1"
    task = ReasoningGym("rush_hour", size=1, held_out=1)
    right = ("A+3", "C-1 A+3", "A+1, A+2", "A+5")
    wrong = ("A+2", "so A+3", "B-1 A+3", "C-2 A+3", "A+3 C-1", "A+3 A+3", "C-1 C-1 A+3", "A+3.")
    assert [score_answer(task._source, text, entry).outcome for text in right] == ["right"] * len(right)
    assert [score_answer(task._source, text, entry).outcome for text in wrong] == ["wrong"] * len(wrong)


@pytest.mark.parametrize(
    ("answer", "right"),
    [("{}", True), ("a cab: {}", False), ("{} back", False), ("{} (in this order)", False), ("{} → D", False)],
)
def test_presses_of_quantum_lock_stand_alone(answer, right):
    task = ReasoningGym("quantum_lock", {"difficulty": 3}, size=1, held_out=1)
    sequence = task[0].answer
    for text in (sequence, sequence.lower(), sequence.replace(" → ", ""), sequence.replace(" → ", ", ")):
        assert (task.verify(answer.format(text), task[0])["exact"] == 1) is right


def ask(dataset, answer, **arguments):
    """Score and outcome of an answer to the first problem of a generator."""
    task = ReasoningGym(dataset, size=1, held_out=1, **arguments)
    episode = reply(task[0], answer.format(task[0].answer))
    return task.score(episode)["score"], episode.info["outcome"]


@pytest.mark.parametrize(
    ("dataset", "answer", "outcome"),
    [
        *(("countdown", text, "refused") for text in ("abs(1)", "1.real", "[1]", "'1'", "x.y", "1" * 2001, "a_b")),
        ("puzzle24", "().__class__", "refused"),
        *(("simple_integration", text, "refused") for text in ("Integral(x, x)", "S('1')", "x.diff", "lambda")),
        ("simple_integration", "  {} + sqrt(2)*0.5\n", "right"),
        ("polynomial_multiplication", "0 + {}", "right"),
        ("polynomial_multiplication", "sin(x)", "refused"),
        ("n_queens", "oracle_answer", "wrong"),
        ("game_of_life", '{{"a": 1}}', "raised"),
        ("prime_factorization", "seven", "raised"),
        ("coin_flip", "1e999999", "raised"),
    ],
)
def test_outcomes_of_answers(dataset, answer, outcome):
    score, found = ask(dataset, answer)
    assert (score, found) == (float(outcome == "right"), outcome)


def test_a_list_in_place_of_its_text_keeps_its_partial_credit():
    task = ReasoningGym("spiral_matrix", size=1, held_out=1)
    assert task.verify(f"[{', '.join(task[0].answer.split())}]", task[0]) == {"exact": 0, "score": 0.1}
    assert task.verify("oracle_answer.split()", task[0])["score"] == 0


@pytest.mark.parametrize(("dataset", "answer"), [("countdown", "9**9**9**9"), ("coin_flip", "1e999999999")])
def test_an_answer_that_takes_too_long_scores_0_and_is_counted(dataset, answer):
    task = ReasoningGym(dataset, size=1, held_out=1, timeout_s=1.5)
    episodes = [reply(task[0], text) for text in (answer, task[0].answer)]
    assert [scores["exact"] for scores in task.scores(episodes)] == [0, 1]
    assert episodes[0].info["outcome"] in ("timed_out", "died")  # the limit of memory can be the first
    assert episodes[0].info["counts"] == {f"reasoning_gym/{episodes[0].info['outcome']}": 1}
    assert "counts" not in episodes[1].info


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
    said = (f"12 and 7, so {task[0].answer}.", "no idea")
    right, wrong = (task.score(reply(task[0], text)) for text in said)
    assert right == {"format": 1, "exact": 1, "score": 1} and wrong == {"format": 0, "exact": 0, "score": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "chain_sums"}, r"'chain_sums' is no generator of reasoning-gym; did you mean 'chain_sum'"),
        ({"dataset": "gcd", "parameters": {"no_such": 1}}, r"task\.parameters=.*no_such.* refused by .*'gcd'"),
        ({"dataset": "gcd", "parameters": {"min_numbers": 0}}, r"refused by the generator 'gcd': min_numbers"),
        ({"dataset": "composite"}, r"refused by the generator 'composite'"),
        ({"dataset": "gcd", "size": 0}, r"size must be at least 1, got 0"),
        ({"dataset": "gcd", "timeout_s": 0}, r"timeout_s must be in \(0, 1e4\), got 0"),
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
