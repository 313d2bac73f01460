"""Multi-attempt RL: rewards of episodes worked by hand, what an episode's row holds, and accuracy over attempts."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.agents.multi_attempt import AttemptsCurve, MultiAttempt, MultiAttemptDemonstrations
from tasks.arithmetic.task import Arithmetic
from tests.rollouts.text.test_tools import POLICY
from tests.tiny_recipes import Counting

LINES = {"w": "x", "e": "", "c": "7"}  # wrong, no answer, right: a digit is right


@dataclass
class Says:
    """An engine whose k-th attempt is the k-th letter's line."""

    letters: str
    ended: str = "done"

    def sample(self, requests, sampling):
        line, self.letters = LINES[self.letters[0]], self.letters[1:]
        ids = torch.cat([POLICY.tokenize(line), torch.tensor([POLICY.tokenizer.eos_token_id])])
        return [
            Completion(
                POLICY.encode(r.observation), ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), line, self.ended,
                extra={"temperature": torch.tensor(1.0)},
            )
            for r in requests
        ]  # fmt: skip


def play(engine, attempts, slots=(3,), group_size=1, **options):
    task = Counting()
    context = Context(task, engine, POLICY, Sampling(max_tokens=3), seed=0, iteration=0, group_size=group_size)
    rollout = MultiAttempt(attempts, **options)
    return rollout.collect([(slot, task[slot]) for slot in slots], context)


@pytest.mark.parametrize(
    ("letters", "allowed", "reward", "tries"),
    [("wc", 3, 1.0, 2), ("www", 3, -0.5, 3), ("ee", 2, -1.0, 2), ("wc", 1, -0.5, 1), ("ew", 2, -0.5, 2)],
)
def test_rewards_of_episodes_by_hand(letters, allowed, reward, tries):
    """1 as the second attempt is right; -0.5 as an answer was given, in the fourth case before the right one was
    allowed, in the fifth after an attempt without any; -1 as no attempt had an answer."""
    (episode,) = play(Says(letters), (allowed, allowed))
    assert collate([episode], POLICY)["reward"].tolist() == [reward]
    assert len(episode.info["outcomes"]) == tries and episode.info["allowed"] == allowed


def test_the_row_holds_the_attempts_and_what_was_said_between_them():
    (episode,) = play(Says("wec"), (4, 4), feedback="[{left}]")
    done = episode.turns[0].completion
    prompt, row = POLICY.decode(done.observation["input_ids"].tolist()), POLICY.decode(done.action.tolist())
    assert "4 attempts" in prompt and row == "x[3][2]7" and episode.output == "7"
    # one letter and an end, three read, an end, three read, one letter and an end
    assert done.action_mask.tolist() == [True] * 2 + [False] * 3 + [True] + [False] * 3 + [True] * 2


def test_an_attempt_that_is_cut_off_without_an_answer_is_the_last():
    (episode,) = play(Says("wec", ended="truncated"), (4, 4))
    assert episode.info["outcomes"] == ["wrong", "none"] and episode.turns[0].reward == -0.5


def test_the_number_of_attempts_is_uniform_over_prompts_and_the_same_in_a_group():
    episodes = play(Says("w" * 5), (1, 5), slots=range(40), group_size=2)
    allowed = [episode.info["allowed"] for episode in episodes]
    assert allowed[::2] == allowed[1::2] and set(allowed) == {1, 2, 3, 4, 5}
    assert all(len(e.info["outcomes"]) == e.info["allowed"] for e in episodes)


def test_the_learner_scores_the_row_as_it_was_sampled():
    engine = LocalEngine()
    engine.sync(POLICY, 0)
    batch = collate(play(engine, (3, 3), slots=range(4)), POLICY)
    mask = batch["action_mask"]
    with torch.no_grad():
        assert_close(POLICY(batch).logprobs[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)
    assert bool((~mask).any())


def test_a_failed_attempt_is_an_error_without_a_reward():
    (episode,) = play(Says("w", ended="error"), (3, 3))
    assert episode.ended == "error" and "error" in episode.info and episode.turns[0].reward == 0


def test_demonstrations_end_with_the_right_answer_and_train_on_it_alone():
    task = Arithmetic(digits=(2, 1))
    context = Context(task, None, POLICY, Sampling(), seed=0, iteration=0)
    rollout = MultiAttemptDemonstrations(wrong=1.0, attempts=(3, 3), feedback="#")
    for episode in rollout.collect([(slot, task[slot]) for slot in range(6)], context):
        (turn,) = episode.turns
        row, answer = turn.completion, task.demonstrate(episode.prompt.index)
        assert episode.source == "demo" and episode.info["outcomes"][-1] == "right"
        attempts = POLICY.decode(row.action.tolist()).split("#")
        assert attempts[-1] == answer and len(attempts) == len(episode.info["outcomes"])
        assert POLICY.decode(row.action[row.action_mask].tolist()) == answer


def test_accuracy_over_the_number_of_attempts():
    """Right at the first, third and third of three attempts, and never: 1/4, 1/4 and 3/4 within 1, 2 and 3."""
    listed = [["right"], ["wrong", "none", "right"], ["wrong", "wrong", "right"], ["none"] * 3]
    episodes = [Episode(Prompt("p/0"), 0, 0, info={"outcomes": each, "allowed": 3}) for each in listed]
    failed = replace(episodes[0], ended="error")
    curve = AttemptsCurve(3)([*episodes, failed])
    shares = {"at_1": 0.25, "at_2": 0.25, "at_3": 0.75, "gain": 0.5, "tries": 2.5, "n": 4.0, "errors": 1.0}
    assert curve == pytest.approx(shares)
    with pytest.raises(KeyError, match="not allowed 5 attempts"):
        AttemptsCurve(5)(episodes)


def test_settings_that_allow_no_attempts_are_refused():
    with pytest.raises(ValueError, match="least and the greatest"):
        MultiAttempt((3, 1))
    with pytest.raises(ValueError, match="feedback is empty"):
        MultiAttempt(feedback="")
    with pytest.raises(ValueError, match=r"rollout\.wrong|wrong"):
        MultiAttemptDemonstrations(wrong=1.5)
