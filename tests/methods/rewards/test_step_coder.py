"""StepCoder's reward, prefixes and mask of executed lines, by hand and on programs that ran in the sandbox."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.methods.rewards.step_coder import CompletionCurriculum, MaskUnexecuted, compiler_feedback, find_executed
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.weighting import TokenMean
from tasks.code.task import Code

SOLUTION = "def solve(x):\n    x = x + 1\n    x = x * 2\n    return x"


class Characters:
    """A policy whose tokens are characters, and an end."""

    def decode(self, ids):
        return "".join(chr(i) for i in ids if i)

    def token_texts(self, ids):
        return [chr(i) if i else "<end>" for i in ids]

    def encode(self, raw):
        return {}

    def encode_demonstration(self, raw, output):
        return torch.tensor([*map(ord, output), 0])


class Typist:
    """An engine that writes the end of the solution after every prefix."""

    def sample(self, requests, sampling):
        rests = [SOLUTION[0 if r.prefix is None else len(r.prefix) :] for r in requests]
        return [completion([*map(ord, rest), 0], rest) for rest in rests]


def completion(ids, text):
    size = len(ids)
    return Completion({}, torch.tensor(ids), torch.full((size,), -1.0), torch.ones(size).bool(), text)


def context():
    task = SimpleNamespace(demonstrate=lambda index: SOLUTION)
    return Context(task, Typist(), Characters(), Sampling(), seed=0, iteration=0, group_size=2)


def episode(program, outcome="failed", lines=()):
    info = {"outcome": outcome, "executed_lines": lines}
    return Episode(Prompt("p"), 0, 0, [Turn(completion([*map(ord, program), 0], program))], info=info)


def trained(program, outcome, lines):
    """What is left of a program in the loss."""
    (masked,) = MaskUnexecuted()([episode(program, outcome, lines)], context())
    done = masked.turns[0].completion
    return Characters().decode(done.action[done.action_mask].tolist()), bool(done.action_mask[-1])


def test_the_reward_by_hand():
    cases = {(0, 0, 0): -1.0, (1, 0, 0): -0.6, (1, 1, 0): -0.3, (1, 1, 1): 1.0}
    assert {case: compiler_feedback(*case) for case in cases} == cases


def test_the_last_lines_are_left_to_write():
    part, prompt = CompletionCurriculum(), Prompt("p/train/0", ({"role": "user", "content": ""},))
    wanted = [
        "    return x",
        "    x = x * 2\n    return x",
        "    x = x + 1\n    x = x * 2\n    return x",
        SOLUTION,
        SOLUTION,
    ]
    for written in wanted:
        first, second = part.collect([(3, prompt)], context())
        done = first.turns[0].completion
        assert first.output == SOLUTION and (first.group, second.sample_index) == (3, 1)
        assert Characters().decode(done.action[done.action_mask].tolist()) == written
        assert_close(done.behavior_logprobs, torch.where(done.action_mask, -1.0, 0.0))
        part.observe([[Episode(prompt, 3, 0, scores={"exact": 1.0})]])


def test_the_number_of_lines_grows_above_the_threshold_and_is_saved():
    part, prompt = CompletionCurriculum(threshold=0.5), Prompt("p")
    half = [[Episode(prompt, 0, i, scores={"exact": float(i)}) for i in (0, 1)]]
    part.observe(half)
    assert part.lines == 1  # .5 is not above the threshold
    part.observe([*half, [Episode(prompt, 1, 0, scores={"exact": 1.0})]])
    assert part.lines == 2 and part.metrics() == {"rollout/lines_to_write": 2.0}
    other = CompletionCurriculum()
    other.load_state_dict(part.state_dict())
    assert other.lines == 2


def test_tokens_of_lines_that_no_test_executed_are_not_trained_on():
    program = "def solve(x):\n    if x > 9:\n        x = 0\n    return x"
    assert trained(program, "failed", (1, 2, 4)) == ("def solve(x):\n    if x > 9:\n    return x", True)
    assert trained(program, "passed", (1, 2, 3, 4)) == (program, True)
    assert trained(program, "raised", (1, 2)) == (program, True)  # what did not run to its end keeps all
    assert trained("x = 1\ny = 2", "failed", (1,)) == ("x = 1\n", False)


def test_the_sandbox_reports_every_line_of_a_right_program():
    task = Code(count=20)
    played = [Episode(task[i], i, 0, [Turn(completion([1], task.demonstrate(i)))]) for i in range(4)]
    task.scores(played)
    for each in played:
        assert each.info["outcome"] == "passed"
        assert find_executed(each.output, each.info["executed_lines"]) == set(range(1, each.output.count("\n") + 2))


def test_a_statement_of_several_lines_is_executed_as_one():
    assert find_executed("x = [\n    1,\n    2,\n]\nif x:\n    y = (3,\n         4)\n# end", (1, 5)) == {1, 2, 3, 4, 5}


def test_the_masked_mean_by_hand():
    """-A ratio of .5, -1, 2, 3, .5 with the mask 1, 1, 0, 0, 1: (.5 - 1 + .5) / 3 = 0; without it 5 / 5 = 1."""
    zero = torch.zeros(1, 5)
    for mask, expected in (([1, 1, 0, 0, 1], 0.0), ([1] * 5, 1.0), ([0] * 5, 0.0)):
        batch = Batch(
            action_mask=torch.tensor([mask]).bool(),
            advantages=-torch.tensor([[0.5, -1, 2, 3, 0.5]]),
            behavior_logprobs=zero,
        )
        loss = ClippedSurrogate()(PolicyOutput(zero, zero), batch)
        assert_close((loss * TokenMean()(batch, lambda value: value)).sum(), torch.tensor(expected))


def test_refusals():
    for wrong in ({"lines": 0}, {"threshold": 1.0}):
        with pytest.raises(ValueError, match="rollout"):
            CompletionCurriculum(**wrong)
    with pytest.raises(ValueError, match="executed_lines"):
        MaskUnexecuted()([Episode(Prompt("p"), 0, 0)], context())


def test_without_a_group_the_number_of_lines_stays():
    part = CompletionCurriculum()
    part.observe([])
    assert part.lines == 1


def test_a_token_that_is_no_choice_stays_masked():
    each = episode("x = 1\ny = 2", lines=(1, 2))
    done = each.turns[0].completion
    done.action_mask[:3] = False
    (masked,) = MaskUnexecuted()([each], context())
    assert masked.turns[0].completion.action_mask.tolist() == [False] * 3 + [True] * 9
