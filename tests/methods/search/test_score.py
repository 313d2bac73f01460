"""Self-correction: one row per attempt in view of the ones before, with a reward of its own; demonstrations of it."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.logprobs import score_rows
from mmrl.core.types import Completion, Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.search.score import CorrectionGain, SelfCorrection, SelfCorrectionDemonstrations
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer, score
from mmrl.rollouts.offline.demonstrations import Demonstrations
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.arithmetic.task import Arithmetic
from tests.rollouts.text.test_tools import POLICY
from tests.tiny_recipes import Counting

REWARD = WeightedSum({"exact": 1.0})


@dataclass
class Says:
    """An engine whose k-th attempt at every prompt is right or not, by a list."""

    right: list[int]
    ended: str = "done"

    def sample(self, requests, sampling):
        turn = self.right.pop(0)
        ids = POLICY.tokenize("7" if turn else "x")
        return [
            Completion(
                POLICY.extend(POLICY.encode(r.observation), torch.zeros(0).long() if r.prefix is None else r.prefix),
                ids, torch.zeros(1), torch.ones(1).bool(), "7" if turn else "x", self.ended,
                extra={"temperature": torch.tensor(1.0)},
            )
            for r in requests
        ]  # fmt: skip


def played(rollout, engine, sampling=None, group_size=1, slots=(3,)):
    task = Counting()
    ctx = Context(
        task,
        engine,
        POLICY,
        sampling or Sampling(),
        seed=0,
        iteration=0,
        group_size=group_size,
        collector=Scorer(task, REWARD),
    )
    episodes = rollout.collect([(slot, task[slot]) for slot in slots], ctx)
    score(episodes, task, REWARD)
    return episodes


@pytest.mark.parametrize(("right", "second"), [((0, 1), 11.0), ((1, 0), -10.0), ((1, 1), 1.0), ((0, 0), 0.0)])
def test_progress_is_rewarded_beside_the_attempt(right, second):
    # r2 + 10 (r2 - r1); the first attempt sees r1 alone
    episodes = played(SelfCorrection(progress_coef=10.0), Says(list(right)))
    batch = collate(episodes, POLICY)
    assert batch["reward"].tolist() == [float(right[0]), second]
    assert batch["is_first"].tolist() == [True, False]
    stage_one = collate(played(SelfCorrection(first_reward_weight=0.0), Says(list(right))), POLICY)
    assert stage_one["reward"].tolist() == [0.0, float(right[1])]


def test_three_attempts_are_rewarded_one_by_one():
    rewards = collate(played(SelfCorrection(3, progress_coef=2.0), Says([0, 1, 0])), POLICY)["reward"]
    assert rewards.tolist() == [0.0, 1.0 + 2.0, 0.0 - 2.0]


def test_a_later_attempt_reads_the_earlier_one_and_the_request():
    (episode,) = played(SelfCorrection(message=" again: {question}"), Says([0, 1]))
    first, second = (turn.completion for turn in episode.turns)
    read = POLICY.decode(second.observation["input_ids"].tolist())
    assert read == POLICY.decode(first.observation["input_ids"].tolist()) + "x again: count count count 3="
    assert episode.output == "7" and [one["exact"] for one in episode.info["attempts"]] == [0.0, 1.0]


def test_the_learner_scores_both_rows_as_they_were_sampled():
    local = LocalEngine()
    local.sync(POLICY, 0)
    sampling = Sampling(max_tokens=4)
    episodes = played(SelfCorrection(), local, sampling, group_size=2, slots=(1, 2))
    batch = collate(episodes, POLICY)
    mask = batch["action_mask"]
    with torch.no_grad():
        assert_close(POLICY(batch).logprobs[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)
    plain = played(SingleTurn(), local, sampling, group_size=2, slots=(1, 2))
    for one, other in zip(episodes, plain):  # the first attempt is an answer like any other
        assert torch.equal(one.turns[0].completion.action, other.turns[0].completion.action)


def test_a_failed_attempt_is_an_error_and_no_score():
    (episode,) = played(SelfCorrection(), Says([1, 1], ended="error"))
    assert episode.ended == "error" and "error" in episode.info and not episode.scores


@pytest.mark.parametrize("ends", [("error", "done"), ("done", "error")])
def test_one_failed_attempt_is_enough_for_an_error(ends):
    class Ends(Says):
        def sample(self, requests, sampling):
            self.ended = ends[2 - len(self.right)]
            return super().sample(requests, sampling)

    (episode,) = played(SelfCorrection(), Ends([1, 1]))
    assert episode.ended == "error" and not episode.scores


def test_progress_counts_attempts_in_episodes():
    """Three episodes of two attempts: half of three is 1, and then all of them."""
    notes, task = [], Counting()
    ctx = Context(
        task, Says([1, 1]), POLICY, Sampling(), seed=0, iteration=0, collector=Scorer(task, REWARD),
        progress=lambda *note: notes.append(note), group_size=3,
    )  # fmt: skip
    SelfCorrection().collect([(0, task[0])], ctx)
    assert notes == [("rollout", 1, 3), ("rollout", 3, 3)]


def test_an_answer_that_happens_to_be_right_is_trained_on():
    class Same(Counting):
        def demonstrate(self, index):
            return "7"

    ctx = Context(Same(), None, POLICY, Sampling(), seed=0, iteration=0)
    (episode,) = SelfCorrectionDemonstrations(wrong=1.0).collect([(0, Same()[0])], ctx)
    row = episode.turns[0].completion
    trained = POLICY.decode(row.action[row.action_mask].tolist())
    assert trained.count("7") == 2 and POLICY.decode(row.action.tolist()).count("7") == 2


def test_what_a_second_look_is_good_for():
    episodes = [played(SelfCorrection(), Says(list(r)))[0] for r in ((0, 1), (0, 1), (1, 0), (1, 1), (0, 0))]
    shares = CorrectionGain()([episode.light() for episode in episodes])
    expected = {"first": 0.4, "last": 0.6, "gain": 0.2, "corrected": 0.4, "spoiled": 0.2, "n": 5.0, "errors": 0.0}
    assert shares == pytest.approx(expected)
    with pytest.raises(KeyError, match="info\\['attempts'\\]"):
        CorrectionGain()(played(SingleTurn(), Says([1])))


def test_settings_that_make_no_attempts_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        SelfCorrection(1)
    with pytest.raises(ValueError, match="message is empty"):
        SelfCorrection(message="")


TASK = Arithmetic(digits=(2, 1))


RETRY = " again {question}"


def demonstrated(rollout, slots=range(6)):
    ctx = Context(TASK, None, POLICY, Sampling(), seed=0, iteration=0, group_size=1)
    return rollout.collect([(slot, TASK[slot]) for slot in slots], ctx)


def text(ids):
    return POLICY.decode(ids.tolist())


@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_attempts_follow_each_other_with_the_request_between(wrong):
    for episode in demonstrated(SelfCorrectionDemonstrations(message=RETRY, wrong=wrong)):
        (turn,) = episode.turns
        row, answer = turn.completion, TASK.demonstrate(episode.prompt.index)
        request = RETRY.replace("{question}", episode.prompt.messages[0]["content"])
        first, _, second = text(row.action).partition(request)
        assert second == answer and episode.source == "demo"
        assert (first == answer) == (wrong == 0) and first.isdigit()
        ids = len(POLICY.encode_demonstration(episode.prompt.observation, answer))
        last = torch.arange(len(row.action_mask)) >= len(row.action_mask) - ids
        assert torch.equal(row.action_mask, last | (torch.arange(len(row.action_mask)) < ids) if wrong == 0 else last)


def test_the_first_attempt_is_as_likely_as_an_answer_that_stands_alone():
    alone = collate(demonstrated(Demonstrations()), POLICY)
    twice = collate(demonstrated(SelfCorrectionDemonstrations(message=RETRY, wrong=0.0)), POLICY)
    with torch.no_grad():
        one, two = (score_rows(POLICY, b, lambda out: out.logprobs, 8, torch.device("cpu")) for b in (alone, twice))
    for row in range(6):
        mask = alone["action_mask"][row]
        assert_close(two[row, : len(mask)][mask], one[row][mask], rtol=0, atol=1e-5)


def test_the_share_of_wrong_first_attempts():
    rows = [
        episode.turns[0].completion for episode in demonstrated(SelfCorrectionDemonstrations(message=RETRY), range(200))
    ]
    wrong = sum(not bool(row.action_mask[0]) for row in rows)
    assert 70 <= wrong <= 130  # 200 draws at one half, less the few other problems of the same answer


@pytest.mark.parametrize("bad", [{"num_attempts": 1}, {"message": ""}, {"wrong": 1.5}])
def test_bad_settings_of_demonstrations_are_refused(bad):
    with pytest.raises(ValueError, match="num_attempts >= 2"):
        SelfCorrectionDemonstrations(**bad)
