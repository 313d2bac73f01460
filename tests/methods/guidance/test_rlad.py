"""RLAD: what a problem collects, rewards and advantages by hand, budgets by brute force, and the start's examples."""

from dataclasses import replace
from itertools import combinations, product

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.methods.guidance.rlad import (
    AbstractionAdvantage,
    AbstractionReward,
    Abstractions,
    BudgetAccuracy,
    budget_accuracy,
    write_question,
)
from tasks.strings.functions import apply_chain
from tasks.strings.hidden import HiddenFunction
from tests.methods.problems.test_ssp import Says
from tests.rollouts.text.test_tools import POLICY
from tests.tasks.replies import reply

EXACT = {"exact": 1.0}
TASK = HiddenFunction(functions=list("AFLNU"), letters=(3, 3), count=40)
TEMPLATES = {"proposer_prompt": "{question}#", "solver_prompt": "{question}{abstraction}"}


def solved(hint, score, role="solver"):
    return Episode(Prompt("p/0"), 0, 0, scores={"exact": float(score)}, role=role, info={"hint": hint})


def hint(number):
    return Episode(Prompt("p/0"), 0, 0, scores={"exact": 1.0}, role="proposer", info={"hint": number})


def test_rewards_by_hand():
    """Right solutions of two hints [[1, 0, 1, 1], [0, 0, 0, 1]]: 3/4 and 1/4; a right one without a hint earns 0."""
    table = [[1, 0, 1, 1], [0, 0, 0, 1]]
    group = [hint(0), *(solved(0, x) for x in table[0]), solved(0, 1, "plain")]
    group += [hint(1), *(solved(1, x) for x in table[1]), solved(1, 0, "plain"), hint(2)]
    assert AbstractionReward(EXACT)(group) == [0.75, *table[0], 0, 0.25, *table[1], 0, 0]


def test_advantages_by_hand():
    """Hints .75 and .25 have mean 1/2. Solutions 1, 0, 1, 1: mean 3/4, population std sqrt(3)/4, so that a right one
    has (1/4) / (sqrt(3)/4) = 1/sqrt(3), the wrong one -sqrt(3). Of another problem both hints are equal: 0."""
    batch = Batch(
        action_mask=torch.tensor([[True, False]] * 8),
        episode_reward=torch.tensor([0.75, 0.25, 1, 0, 1, 1, 0.5, 0.5]),
        group=torch.tensor([3] * 6 + [4] * 2),
        episode=torch.arange(8),
        abstraction=torch.tensor([-1, -1, 0, 0, 0, 0, -1, -1]),
    )
    out = AbstractionAdvantage(epsilon=0)(batch, Context(None, None, None, Sampling(), 0, 0))["advantages"]
    root = 3**0.5
    assert_close(out[:, 0], torch.tensor([0.25, -0.25, 1 / root, -root, 1 / root, 1 / root, 0, 0]))
    assert not out[:, 1].any()


def collect(answer, **options):
    task = TASK
    engine = Says(answer)
    rollout = Abstractions(**{"solutions": 2, "plain": 1, **TEMPLATES, **options})
    ctx = Context(task, engine, POLICY, Sampling(), seed=0, iteration=0, group_size=2)
    return rollout.collect([(slot, task[slot]) for slot in (5, 7)], ctx), engine


def names(text, before, number):
    """A proposer whose hints are A, then F; a solver that writes B behind a hint and C without one."""
    return "AF"[number] if text.endswith("#") else "c" if text.endswith("=") else "b"


def test_a_problem_has_hints_and_their_solutions_in_order():
    episodes, engine = collect(names)
    assert [(e.role, e.info["hint"]) for e in episodes] == 2 * [
        (role, n) for n in (0, 1) for role in ("proposer", "solver", "solver", "plain")
    ]
    assert [e.group for e in episodes] == [5] * 8 + [7] * 8
    assert [e.sample_index for e in episodes] == 2 * list(range(8))
    assert [int(e.turns[0].completion.extra["abstraction"]) for e in episodes[:8]] == [-1, 0, 0, -2, -1, 1, 1, -2]
    question = TASK[5].messages[0]["content"]
    texts = [e.prompt.messages[0]["content"] for e in episodes[:8]]
    assert texts == [question + end for end in ("#", "A", "A", "", "#", "F", "F", "")]
    assert [e.output for e in episodes[:8]] == ["A", "b", "b", "c", "F", "b", "b", "c"]
    assert all(e.prompt.answer == TASK[e.group].answer for e in episodes)
    assert len(engine.read) == 16
    assert {e.ended for e in episodes} == {"done"} and not any("error" in e.info for e in episodes)


def test_requests_share_an_id_where_they_have_one_context():
    class Records(Says):
        def sample(self, requests, sampling):
            pairs.update((r.prompt_id, r.observation["messages"][0]["content"]) for r in requests)
            return super().sample(requests, sampling)

    pairs = set()
    ctx = Context(TASK, Records(names), POLICY, Sampling(), seed=0, iteration=0, group_size=2)
    Abstractions(solutions=2, **TEMPLATES).collect([(slot, TASK[slot]) for slot in (5, 7)], ctx)
    assert len(pairs) == len({number for number, _ in pairs}) == len({text for _, text in pairs}) == 8


def test_a_hint_with_the_answer_is_read_at_evaluation_alone():
    answers = {TASK[slot].messages[0]["content"]: TASK[slot].answer for slot in (5, 7)}

    def tells(text, before, number):
        return f"it is {answers[text[:-1]].upper()}." if text.endswith("#") else names(text, before, number)

    episodes, _ = collect(tells)
    assert [e.role for e in episodes] == ["proposer", "plain"] * 4
    assert episodes[0].info["counts"] == {"abstractions/leaked": 1}
    assert (
        AbstractionReward(EXACT)(
            [Episode(e.prompt, 0, 0, scores={"exact": 1.0}, role=e.role, info=e.info) for e in episodes[:4]]
        )
        == [0] * 4
    )
    held_out, _ = collect(tells, return_hints=False, plain=0)
    assert [e.role for e in held_out] == ["solver"] * 8


def test_an_empty_hint_is_not_read():
    episodes, _ = collect(lambda text, before, number: " " if text.endswith("#") else "b")
    assert [e.role for e in episodes] == ["proposer", "plain"] * 4 and episodes[0].info["proposal"] == "empty"
    assert {e.ended for e in episodes} == {"done"}
    assert collect(lambda *parts: " ", return_hints=False, plain=0)[0] == []


def test_a_hint_whose_solutions_failed_is_an_error():
    class Fails(Says):
        def sample(self, requests, sampling):
            done = super().sample(requests, sampling)
            for completion in done:
                completion.ended = "error" if completion.output == "b" else "done"
            return done

    rollout = Abstractions(solutions=2, plain=1, **TEMPLATES)
    ctx = Context(TASK, Fails(names), POLICY, Sampling(), seed=0, iteration=0, group_size=1)
    episodes = rollout.collect([(5, TASK[5])], ctx)
    assert [(e.role, e.ended) for e in episodes] == [
        ("proposer", "error"), ("solver", "error"), ("solver", "error"), ("plain", "done"),
    ]  # fmt: skip
    no_solution, no_completion = "all solutions with this hint failed", "the engine gave no completion"
    assert [e.info.get("error") for e in episodes] == [no_solution, no_completion, no_completion, None]


def test_templates_are_checked_and_keep_images():
    with pytest.raises(ValueError, match=r"rollout\.solver_prompt='\{question\}' lacks \{abstraction\}"):
        Abstractions(solver_prompt="{question}")
    content = [{"type": "image"}, {"type": "text", "text": "how {many}?"}]
    prompt = Prompt("p/0", ({"role": "system", "content": "s"}, {"role": "user", "content": content}))
    first, last = write_question(prompt, "{question} {abstraction}", abstraction="{question}").messages
    assert first["content"] == "s"
    assert last["content"] == [{"type": "image"}, {"type": "text", "text": "how {many}? {question}"}]


def test_budgets_against_all_draws():
    """Every choice of m of 3 hints and of k of 3 solutions of each, one by one."""
    table = [[1, 0, 0], [0, 0, 0], [1, 1, 0]]
    for m, k in product((1, 2, 3), (1, 2, 3)):
        draws = [
            any(any(part) for part in parts)
            for chosen in combinations(table, m)
            for parts in product(*(combinations(row, k) for row in chosen))
        ]
        assert budget_accuracy([sum(row) for row in table], 3, m, k) == pytest.approx(sum(draws) / len(draws))
    with pytest.raises(ValueError, match="1 <= m <= 3 hints and 1 <= k <= 3 solutions, got m=4, k=1"):
        budget_accuracy([1, 0, 2], 3, 4, 1)


def test_accuracy_by_budget_of_episodes():
    """One problem whose hints have 2 and 0 right of 2: one solution is right with 1/2, two hints surely hold one."""
    episodes = [solved(0, 1), solved(0, 1), solved(1, 0), solved(1, 0), solved(0, 1, "plain")]
    out = BudgetAccuracy([[1, 1], [2, 1], [1, 2], [4, 4]])(episodes)
    assert out.pop("4x4") != out["problems"] == 1
    assert out == {"1x1": 0.5, "2x1": 1.0, "1x2": 0.5, "problems": 1.0, "errors": 0.0}
    # another problem with 1 of 1, which has no second solution and no second hint: means (1/2 + 1) / 2 and 1/2
    episodes.append(replace(solved(0, 1), group=1))
    out = BudgetAccuracy([[1, 1], [2, 1], [1, 2], [1, 3], [3, 1]])(episodes)
    assert (out["1x1"], out["2x1"], out["1x2"], out["problems"]) == (0.75, 1.0, 0.5, 2.0)
    assert out["1x3"] != out["1x3"] and out["3x1"] != out["3x1"]
    mostly = [solved(0, 1), solved(0, 1), solved(0, 0)]  # 2 of 3
    assert BudgetAccuracy()(mostly)["1x1"] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="pairs of a number of hints"):
        BudgetAccuracy([[1]])


@pytest.mark.parametrize("level", [1, 2])
def test_examples_determine_the_answer_and_the_start_names_the_functions(level):
    task = HiddenFunction(
        functions=list("AFLNU"), letters=(3, 3), levels=[level], steps=True, kinds=["plain", "propose", "hinted"]
    )
    for index in range(30):
        chain, word, words = task.problem(index)
        text = task[index].messages[0]["content"]
        shown, _, asked = text.partition("=")[0].rpartition(" ")
        assert asked == word and shown.split() == [f"{w}>{apply_chain(chain, w)[-1]}" for w in words]
        explained = {
            apply_chain(other, word)[-1]
            for other in product("AFLNU", repeat=level)
            if all(apply_chain(other, w)[-1] == apply_chain(chain, w)[-1] for w in words)
        }
        assert explained == {task[index].answer}
        inner_first = "".join(reversed(chain))
        end, said = {
            "plain": ("=", "\n".join([*inner_first, task[index].answer])),
            "propose": ("=#", inner_first),
            "hinted": (f"={inner_first}", task[index].answer),
        }[task.kind(index)]
        assert text.endswith(word + end) and task.demonstrate(index) == said
    plain = task.on("held_out")
    assert {plain.kind(i) for i in range(9)} == {"plain"}
    assert plain.score(reply(plain[0], plain.demonstrate(0)))["exact"] == 1
    assert not {task.split_key(task.problem(i)) for i in range(60)} & {
        plain.split_key(plain.problem(i)) for i in range(60)
    }


@pytest.mark.parametrize(
    "options, message",
    [
        ({"kinds": ["ask"]}, "kinds must be of plain, propose, hinted, got"),
        ({"examples": 0}, "examples must be at least 1, got 0"),
        ({"definitions": True}, "definitions would name the functions that are hidden"),
    ],
)
def test_options_of_the_task_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        HiddenFunction(**options)
