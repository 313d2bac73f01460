"""RLTF: rewards, lines of errors and the loss by hand, and on programs that ran in the sandbox."""

import math

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.methods.advantages.rltf import FineGrainedAdvantage, PenaliseErrorLines, find_error_lines
from mmrl.objectives.policy import PolicyGradient
from tasks.code.rewards import unit_test_feedback
from tasks.code.task import Code
from tests.laws.example import Example

LAWS = [Example(FineGrainedAdvantage())]
PROGRAM = "def solve(x):\n    y = x + 1\n    return y"


class Characters:
    def token_texts(self, ids):
        return [chr(i) if i else "" for i in ids]


CTX = Context(None, None, Characters(), Sampling(), seed=0, iteration=0)


def episode(program, **info):
    ids = torch.tensor([*map(ord, program), 0])
    done = Completion({}, ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), program)
    return Episode(Prompt("p"), 0, 0, [Turn(done)], info=info)


def penalised(program, weight=0.4, **info):
    """The text of the tokens that are penalised."""
    (done,) = PenaliseErrorLines(weight)([episode(program, **info)], CTX)
    rewards = done.turns[0].completion.extra["token_rewards"]
    assert set(rewards.tolist()) <= {0.0, -torch.tensor(weight).item()}
    return "".join(c for c, reward in zip(program, rewards) if reward), bool(rewards[-1])


def test_rewards_by_hand():
    cases = {(0, 0, 0): -1.0, (1, 0, 0): -0.6, (1, 1, 0): -0.3, (1, 1, 0.5): 0.35, (1, 1, 1): 1.0}
    assert {case: pytest.approx(unit_test_feedback(*case)) for case in cases} == cases


def test_the_loss_by_hand():
    """r = .35 against a greedy -.6 is .95; w = .4 on the second token of probabilities .5, .25, .8.

    -(ln .5 * .95 + ln .25 * .55 + ln .8 * .95) / 3 = (.658490 + .762462 + .211986) / 3 = .544313.
    """
    batch = Batch(
        action_mask=torch.tensor([[True, True, True, False]]),
        episode_reward=torch.tensor([0.35]),
        greedy_reward=torch.tensor([-0.6]),
        token_rewards=torch.tensor([[0.0, -0.4, 0.0, 9.0]]),
    )
    batch = FineGrainedAdvantage()(batch, CTX)
    assert_close(batch["advantages"], torch.tensor([[0.95, 0.55, 0.95, 0.0]]))
    logprobs = torch.tensor([[0.5, 0.25, 0.8, 1.0]]).log()
    loss = PolicyGradient()(PolicyOutput(logprobs, logprobs), batch)
    assert math.isclose(float(loss.sum() / 3), 0.544313, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("outcome", "reason", "line", "lines"),
    [
        ("syntax_error", "SyntaxError", 2, [2]),
        ("syntax_error", "SyntaxError", 4, [1, 2, 3, 4]),  # in the last line: of the whole program
        ("syntax_error", "IndentationError", 5, [1, 2, 3, 4]),  # behind it
        ("syntax_error", "ValueError", 0, []),
        ("raised", "TypeError", 3, [3]),
        ("raised", "TypeError", 4, [4]),
        ("raised", "TypeError", 0, []),
        ("raised", "RuntimeError", 3, []),
        ("raised", "RecursionError", 3, [1, 2, 3, 4]),
        ("timed_out", "", 0, [1, 2, 3, 4]),
        ("failed", "", 0, []),
        ("passed", "", 0, []),
        ("no_function", "", 0, []),
        ("failed", "RecursionError", 2, []),
    ],
)
def test_lines_of_errors_by_hand(outcome, reason, line, lines):
    assert list(find_error_lines(outcome, reason, line, 4)) == lines


def test_tokens_of_the_line_are_penalised():
    info = {"outcome": "raised", "reason": "TypeError", "error_line": 2}
    assert penalised(PROGRAM, **info) == ("    y = x + 1\n", False)
    assert penalised(PROGRAM, **info | {"error_line": 3}) == ("    return y", True)  # the end belongs to the last line
    assert penalised(PROGRAM, **info | {"outcome": "timed_out"}) == (PROGRAM, True)
    assert penalised(PROGRAM, **info | {"outcome": "failed"}) == ("", False)
    assert penalised("def f():\n\n\n  return y\n", **info | {"error_line": 4})[0] == "  return y\n"  # blank lines count
    assert penalised("", **info | {"outcome": "syntax_error", "error_line": 0}) == ("", False)
    with pytest.raises(ValueError, match="no info 'error_line'"):
        PenaliseErrorLines()([episode(PROGRAM)], CTX)
    with pytest.raises(ValueError, match="weight"):
        PenaliseErrorLines(-1.0)


def test_programs_that_ran():
    task = Code(steps=[2, 3], examples=0)
    programs = {
        PROGRAM.replace("x + 1", "x + None"): "    y = x + None\n",
        PROGRAM.replace("y =", "y =="): "    y == x + 1\n",  # y has no value
        "def solve(x:\n    return x\n    x = 1": "def solve(x:\n",
        "def solve(x):\n    return (x": "def solve(x):\n    return (x",  # the last line is about the whole
    }
    episodes = [episode(program) for program in programs]
    for each in episodes:
        each.prompt = task[0]
    task.scores(episodes)
    texts = ["".join(c for c, r in zip(e.output, _rewards(e)) if r) for e in episodes]
    assert texts == list(programs.values())


def _rewards(each):
    (done,) = PenaliseErrorLines()([each], CTX)
    return done.turns[0].completion.extra["token_rewards"]
