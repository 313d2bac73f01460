"""Proposers and solvers: what is played, what is earned, and what becomes known."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch

from mmrl.core.games import GameProblem, Verdict
from mmrl.core.types import Completion, Context, Sampling
from mmrl.methods.problems.absolute_zero import SelfPlay, learnability
from tasks.programs import Programs
from tests.rollouts.text.test_tools import POLICY
from tests.tiny_recipes import Counting

GAME = Programs()


def test_hard_but_not_hopeless():
    assert [learnability(a) for a in (0, 0.125, 0.5, 0.875, 1)] == [0, 0.875, 0.5, 0.125, 0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        learnability(1.5)


@dataclass
class Says:
    """An engine that answers each prompt by a function of its text and of how often that was asked."""

    answer: object

    def __post_init__(self):
        self.asked = {}

    def sample(self, requests, sampling):
        return [self._one(request) for request in requests]

    def _one(self, request):
        text = request.observation["messages"][0]["content"]
        number = self.asked[text] = self.asked.get(text, -1) + 1
        message = self.answer(text, number)
        ids = POLICY.tokenize(message or " ")
        return Completion(
            POLICY.encode(request.observation), ids, torch.zeros(len(ids)), torch.ones(len(ids)).bool(), message,
            extra={"temperature": torch.tensor(1.0)},
        )  # fmt: skip


def played(answer, slots=range(12), game=GAME, **options):
    rollout = SelfPlay(**{"trials": 8, "references": 2, **options})
    ctx = Context(game, Says(answer), POLICY, Sampling(), seed=0, iteration=0)
    return rollout, rollout.collect([(slot, None) for slot in slots], ctx)


def answer_of(text, number):
    """Proposals that are new and sound; solutions that are right for one episode of two."""
    if text.startswith("+p"):
        return "111 222 333 444"
    if text.startswith("+"):
        return "rr 123"
    kind, program = text[:-1].split()[:2]
    if kind == "o":
        return "123" if program == "rr" and number % 2 else "000"
    return "abc?" if kind == "i" else "r"


def test_roles_and_kinds_take_turns_and_share_cells():
    _, episodes = played(answer_of)
    assert [e.role for e in episodes] == ["proposer", "solver"] * 6
    cells = [int(e.turns[0].completion.extra["baseline_group"]) for e in episodes]
    assert cells == [1, 0, 3, 2, 5, 4] * 2


def test_what_each_role_earns():
    _, episodes = played(answer_of, slots=range(6))
    verdicts = [e.info["verdict"] for e in episodes]
    # the proposed problem "rr 123" is solved by every other episode of its output; 0.5 = 1 - 0.5
    assert verdicts[0] == {"earned": 0.5, "exact": 1.0, "proposer_deduce": 1.0, "deduce_solved": 0.5}
    assert verdicts[2]["abduce_solved"] == 0.0 and verdicts[2]["earned"] == 0.0  # hopeless
    assert verdicts[3] == {"earned": -1.0, "exact": 0.0, "solver_abduce": 0.0}  # "abc?" is no list
    assert GAME.score(episodes[0]) == verdicts[0]
    _, broken = played(lambda text, number: "?", slots=range(6))
    assert {e.info["verdict"]["earned"] for e in broken} == {-1.0}
    _, unsound = played(lambda text, number: "zz 123" if text[:2] in ("+d", "+a") else "000", slots=(0, 1, 2))
    assert [e.info["verdict"]["earned"] for e in unsound] == [-0.5, -0.5, -0.5]
    assert unsound[0].info["counts"] == {"self_play/proposer/deduce/not_executable": 1}


def test_sound_proposals_become_known_and_the_newest_are_sampled_first():
    rollout, episodes = played(answer_of)
    before = {kind: len(known) for kind, known in rollout.known.items()}
    rollout.observe([[e.light()] for e in episodes])
    assert rollout.known["deduce"][-1] == GameProblem("deduce", ("rr", "123", "123"))
    assert len(rollout.known["deduce"]) == before["deduce"] + 1  # both proposals were the same
    assert rollout.metrics()["self_play/known_deduce"] == before["deduce"] + 1
    again = SelfPlay()
    again.load_state_dict(rollout.state_dict())
    assert again.known == rollout.known
    ctx = Context(GAME, Says(answer_of), POLICY, Sampling(), seed=0, iteration=1)
    (sampled,) = again.collect([(1, None)], ctx)
    assert sampled.prompt.messages[0]["content"] == "o rr 123>"
    later = rollout.collect([(1, None), (7, None), (13, None)], ctx)  # the next solvers of this kind
    newest = [GAME.pose(problem, "") for problem in rollout.known["deduce"][:-4:-1]]
    assert [e.prompt.messages for e in later] == [prompt.messages for prompt in newest]
    assert len(rollout.known["deduce"]) > 3


def test_a_process_without_prompts_keeps_what_the_others_found():
    """Such a process has not asked the game for its first problems when the others have found the next ones."""
    rollout, episodes = played(answer_of)
    rollout.observe([[e.light()] for e in episodes])
    idle = SelfPlay(trials=8, references=2)
    idle.observe([[e.light()] for e in episodes])
    ctx = Context(GAME, Says(answer_of), POLICY, Sampling(), seed=0, iteration=1)
    idle.collect([(1, None)], ctx)
    assert idle.known == rollout.known


def test_the_known_problems_are_bounded():
    rollout, episodes = played(answer_of, max_problems=3)
    rollout.observe([[e.light()] for e in episodes])
    assert len(rollout.known["deduce"]) == 3


def test_who_solves_alone_proposes_nothing():
    _, episodes = played(answer_of, proposing=False)
    assert {e.role for e in episodes} == {"solver"} and len(episodes) == 12


def test_an_executor_that_is_down_is_an_error_and_no_score():
    class Down(Programs):
        def check(self, proposals):
            return [Verdict("executor")] * len(proposals)

        def judge(self, answers):
            return [Verdict("executor")] * len(answers)

    _, episodes = played(answer_of, game=Down(), slots=range(6))
    assert {e.ended for e in episodes} == {"error"} and not any("verdict" in e.info for e in episodes)
    assert episodes[0].info["counts"] == {"self_play/proposer/deduce/executor": 1}


def proposed(fails, game=GAME):
    """The episode of one proposer with 4 trials; the completions with these numbers fail, the proposal's being 0."""
    engine, numbers = Says(answer_of), itertools.count()

    def sample(requests, sampling):
        done = [engine._one(request) for request in requests]
        return [replace(each, ended="error") if next(numbers) in fails else each for each in done]

    engine.sample = sample
    ctx = Context(game, engine, POLICY, Sampling(), seed=0, iteration=0)
    (episode,) = SelfPlay(trials=4, references=2).collect([(0, None)], ctx)
    return episode


def test_trials_that_could_not_be_judged_do_not_count():
    """Of four trials the second and the fourth are right: 1 - 1/2; without the first one 1 - 2/3."""

    class FirstIsDown(Programs):
        def judge(self, answers):
            verdicts = super().judge(answers)
            return [Verdict("executor"), *verdicts[1:]] if len(answers) > 1 else verdicts

    assert proposed(()).info["verdict"]["earned"] == 0.5
    for episode in (proposed((1,)), proposed((), FirstIsDown())):
        assert episode.info["verdict"]["earned"] == pytest.approx(1 / 3) and "problem" in episode.info


@pytest.mark.parametrize("fails", [(0,), (1, 2, 3, 4)])
def test_a_proposal_that_failed_or_could_not_be_tried_does_not_become_known(fails):
    episode = proposed(fails)
    assert episode.ended == "error" and "problem" not in episode.info and "verdict" not in episode.info


def test_only_games_can_be_played():
    with pytest.raises(ValueError, match="no game"):
        played(answer_of, game=Counting())
