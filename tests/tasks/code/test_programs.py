"""Programs: disjoint splits, sound problems, and answers judged by running them."""

import re

import pytest

from mmrl.core.games import GameProblem
from mmrl.core.types import Episode
from tasks.programs import Programs
from tasks.programs.dsl import LETTERS, execute, parse_results, trusted_interpreter
from tasks.programs.task import lists, programs, sandbox
from tests.tasks.replies import reply

TASK = Programs()


def test_each_letter_by_hand():
    result = {"r": "312", "s": "123", "i": "324", "d": "426", "h": "132", "c": "786"}
    assert set(result) == set(LETTERS)
    assert {letter: trusted_interpreter()(letter, "213") for letter in result} == result
    assert trusted_interpreter()("ri", "199") == "002" and trusted_interpreter()("x", "1") is None
    # the sandbox runs the same interpreter
    jobs = [(letter, "213") for letter in result] + [("x", "1")]
    assert execute(jobs, sandbox()) == [*result.values(), None]


@pytest.mark.parametrize(
    "output", ["", "null", "[]", '["1"]', '["1", "2", "3"]', '["1", 2]', '{"0": "1", "1": "2"}', "[" * 100_000, "1 1"]
)
def test_a_run_that_did_not_print_its_results_has_none(output):
    assert parse_results('["1", null]', 2) == ["1", None]
    assert parse_results(output, 2) == "unreadable"


def test_no_list_of_a_held_out_problem_is_in_a_training_problem():
    train, stored = (set(lists(0.3, 0, split)) for split in ("train", "held_out"))
    assert not train & stored and len(train | stored) == 1000 and len(stored) == 300
    here, there = Programs(proposals=0.5), TASK.on("held_out")
    # the lists that a program is run on; what it makes of them may be any
    assert {given for i in range(60) for given in _given(here[i])} <= train
    assert {given for i in range(60) for given in _given(there[i])} <= stored
    assert {given for kind in here.kinds for p in here.seeds(kind) for given in p.body[1::2]} <= train


def _given(prompt):
    problem = prompt.info.get("problem")
    return problem.body[1::2] if problem else re.findall(r"\d{3}", prompt.answer)


def test_programs_are_all_of_up_to_their_length():
    assert programs(1) == list(LETTERS) and len(programs(2)) == 6 + 36 and len(set(programs(3))) == 6 + 36 + 216


def test_demonstrations_are_right():
    task = Programs(proposals=0.5)
    for index in range(30):
        prompt = task[index]
        assert task.score(reply(prompt, task.demonstrate(index)))["exact"] == 1.0


def test_anything_that_runs_right_is_right():
    abduce = GameProblem("abduce", ("s", "321", "123"))
    induce = GameProblem("induce", ("rr", "123", "123", "456", "456", "789", "789", "012", "012"))
    asked = [
        (abduce, "213"),
        (abduce, "111"),
        (abduce, "12"),
        (induce, "cc"),
        (induce, "r"),
        (induce, "no!"),
        (induce, "zz"),
    ]
    assert [v.outcome for v in TASK.judge(asked)] == ["right", "wrong", "broken", "right", "wrong", "broken", "wrong"]
    shown = TASK.pose(induce, "k").messages[0]["content"]
    assert shown == "p 123 123 456 456>"  # the other half is hidden


def test_proposals_are_checked_by_running_them():
    ask = TASK.ask("deduce", TASK.seeds("deduce")[:2], "k")
    other = TASK.ask("induce", [GameProblem("induce", ("ri", "1"))], "k")
    assert other.messages[0]["content"] == "+p ri>"
    verdicts = TASK.check(
        [
            ("deduce", ask, "ri 123"),
            ("deduce", ask, "zz 123"),
            ("deduce", ask, "ri"),
            ("induce", other, "100 200 300 400"),
        ]
    )
    assert [v.outcome for v in verdicts] == ["valid", "not_executable", "broken", "valid"]
    assert verdicts[0].problem == GameProblem("deduce", ("ri", "123", "432"))
    assert verdicts[3].problem.body == ("ri", "100", "112", "200", "113", "300", "114", "400", "115")


def test_what_is_played_is_scored_by_its_verdict():
    episode = Episode(TASK[0], 0, 0, info={"verdict": {"earned": -0.5, "exact": 0.0}})
    assert TASK.score(episode) == {"earned": -0.5, "exact": 0.0}


@pytest.mark.parametrize("options", [{"length": 9}, {"proposals": 1.0}, {"split": "x"}, {"held_out_fraction": 0}])
def test_what_makes_no_task_is_refused(options):
    with pytest.raises(ValueError, match="programs"):
        Programs(**options)


@pytest.mark.parametrize("form", ["<think>{other}</think>{right}", "<think>a\nb</think>\n\n{right}\n", "{right}\r\n"])
def test_a_thought_before_the_right_answer_costs_nothing(form):
    task = Programs(proposals=0.3)
    prompts = [task[index] for index in range(12)]
    answers = [form.format(right=prompt.answer, other="000") for prompt in prompts]
    assert [scores["exact"] for scores in task.scores(list(map(reply, prompts, answers)))] == [1.0] * 12
    unclosed = [reply(prompt, f"<think>{prompt.answer}") for prompt in prompts]
    assert [scores["exact"] for scores in task.scores(unclosed)] == [0.0] * 12


def test_near_misses_of_a_program_are_wrong():
    run, task = trusted_interpreter(), Programs(length=3)
    everything = [f"{number:03}" for number in range(0, 1000, 7)]
    tables = {}

    def table(program):
        if program not in tables:
            tables[program] = [run(program, given) for given in everything]
        return tables[program]

    count, passed = 0, []
    for index in range(2, 150, 3):  # those that ask for a program
        program, *pairs = task[index].info["problem"].body
        near = {program[:i] + letter + program[i + cut :] for i in range(len(program)) for letter in ("", *LETTERS)
                for cut in (0, 1)} | {program + letter for letter in LETTERS} | {program[::-1]}  # fmt: skip
        wrong = {other for other in near - {"", program} if table(other) != table(program)}
        count += len(wrong)
        passed += [(program, p, pairs) for p in wrong if [run(p, given) for given in pairs[::2]] == pairs[1::2]]
    assert count > 1000 and len(passed) < 0.01 * count, passed
