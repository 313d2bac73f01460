"""Vision-Zero: rewards, advantages and phases by hand, what a game shows to whom, and the state of a run."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling
from mmrl.methods.agents.vision_zero.credit import GameAdvantage, GameReward, clue_rewards, vote_reward
from mmrl.methods.agents.vision_zero.game import SpyGame, read_vote
from mmrl.methods.agents.vision_zero.phases import PhaseSwitch
from tasks.scenes import Counting
from tasks.scenes.spy import SpyScenes, count_colour
from tests.tasks.replies import reply

TASK = SpyScenes(size=32, shapes=["square"], colours=["red", "blue", "green"], sides=[0.25, 0.25], count=60)


def test_rewards_of_clues_by_hand():
    """Votes 3, 1, 0, 0, of which the first is the spy's: m = 1/3, the gap 8/3; -.8/3, and .8/9 - .1 (v - 1/3)."""
    earned = clue_rewards([3, 1, 0, 0], spy=0)
    assert earned == pytest.approx([-0.266667, 0.022222, 0.122222, 0.122222], abs=1e-6)
    assert sum(earned) == pytest.approx(0)
    assert clue_rewards([2, 2, 2, 2], spy=3) == [0, 0, 0, 0]
    assert sum(clue_rewards([0, 4, 1, 2, 7], spy=2, beta=0.3, spread=0.7)) == pytest.approx(0)


def test_rewards_of_votes():
    assert [vote_reward(vote, 2) for vote in (2, 0, None, -1)] == [
        ("right", 1.0), ("wrong", -1.0), ("none", -0.5), ("wrong", -1.0),
    ]  # fmt: skip
    assert [read_vote(text, 4) for text in ("3", "player 1, no: 4.", "N/A", "5", "0", "who", "")] == [
        2, 3, None, -1, -1, -1, -1,
    ]  # fmt: skip


def test_advantages_by_hand():
    """Votes 1, 1, -.5, -1 of one citizen: mean 1/8, population std .892679. A clue -.2667 above a baseline -.013335."""
    batch = Batch(
        action_mask=torch.tensor([[True, False]] * 7),
        episode_reward=torch.tensor([1, 1, -0.5, -1, 1, 0.3, -0.2667]),
        group=torch.tensor([0] * 5 + [1, 1]),
        episode=torch.arange(7),
        voter=torch.tensor([2, 2, 2, 2, 0, -1, -1]),
        role_baseline=torch.tensor([0, 0, 0, 0, 0, 0.1, -0.013335]),
    )
    out = GameAdvantage(epsilon=0)(batch, Context(None, None, None, Sampling(), 0, 0))["advantages"]
    expected = [0.980196, 0.980196, -0.700140, -1.260252, 0, 0.2, -0.253365]
    assert_close(out[:, 0], torch.tensor(expected), atol=1e-6, rtol=0)
    assert not out[:, 1].any()


def test_phases_by_hand():
    """Votes are right from the start: to clues after min_steps; then 1 - .9^n falls below .6 in the 5th step, since
    .9^4 = .6561 and .9^5 = .59049; a phase that nothing ends has max_steps."""
    phases = PhaseSwitch(min_steps=3, max_steps=7, rho=0.9)
    seen = []
    for accuracy in [1.0] * 3 + [0.0] * 5 + [0.0] * 7:
        phases.update(accuracy, 0.0)
        seen.append((phases.phase, phases.steps))
    assert seen[:3] == [("votes", 1), ("votes", 2), ("clues", 0)]
    assert seen[3:8] == [("clues", n) for n in (1, 2, 3, 4)] + [("votes", 0)]
    assert seen[8:] == [("votes", n) for n in range(1, 7)] + [("clues", 0)]
    many_none = PhaseSwitch(phase="clues", min_steps=1)
    many_none.update(1.0, 0.5)
    assert many_none.phase == "votes"
    still = PhaseSwitch(min_steps=1)
    still.update(0.9, 0.2)  # accurate, but too many votes for no player
    assert still.phase == "votes"


@dataclass
class Players:
    """An engine of players who say which picture they see; citizens name the player who sees the other one."""

    vote: object = None

    def __post_init__(self):
        self.read = []

    def sample(self, requests, sampling):
        return [self._one(request) for request in requests]

    def _one(self, request):
        image, text = request.observation["images"][0], request.observation["messages"][0]["content"][1]["text"]
        self.read.append((image, text))
        picture = str(int(image.astype(int).sum()))
        answer = f"sum {picture}" if text.endswith("clue:") else self.name(text, picture)
        return Completion(
            {"input_ids": torch.zeros(2).long()}, torch.zeros(3).long(), torch.zeros(3), torch.ones(3).bool(), answer
        )

    def name(self, text, picture):
        if self.vote is not None:
            return self.vote
        return next(line.split(":")[0] for line in text.splitlines() if ": sum" in line and picture not in line)


def play(rollout, engine=None, slots=(0, 3), iteration=0, group_size=2):
    ctx = Context(TASK, engine or Players(), None, Sampling(), 0, iteration, group_size=group_size)
    return rollout.collect([(slot, TASK[slot]) for slot in slots], ctx)


def game(**options):
    prompts = {"clue_prompt": "{role}\n{clues}\nclue:", "vote_prompt": "{clues}\nspy:"}
    return SpyGame(players=3, rounds=2, **{**prompts, **options})


def test_votes_are_groups_of_a_citizen_and_its_picture():
    engine = Players()
    episodes = play(game(), engine)
    assert len(engine.read) == 2 * 6 + 2 * 2 * 2  # clues of two games, then two votes of two citizens each
    assert [e.group for e in episodes] == [0] * 4 + [3] * 4 and {e.role for e in episodes} == {"voter"}
    assert all(e.info["outcome"] == "right" and e.info["earned"] == 1 for e in episodes)
    voters = [int(e.turns[0].completion.extra["voter"]) for e in episodes]
    spies = [int(episodes[first].prompt.answer) - 1 for first in (0, 4)]
    assert voters == [p for spy in spies for p in range(3) if p != spy for _ in range(2)]
    assert len({(e.group, e.sample_index) for e in episodes}) == 8
    # citizens see the prompt's picture, behind all six clues
    for episode in episodes:
        assert np.array_equal(episode.prompt.images[0], TASK[episode.group].images[0])
        assert episode.prompt.messages[0]["content"][1]["text"].count(": sum") == 6
    reward = GameReward({"earned": 1.0})
    assert reward.scores(episodes) == [{"earned": 1.0, "vote": 1.0}] * 8
    assert reward([replace(e, scores=scores) for e, scores in zip(episodes, reward.scores(episodes))]) == [1.0] * 8


def test_a_player_reads_the_clues_before_its_own_and_the_spy_another_picture():
    engine = Players()
    episodes = play(game(phase="clues"), engine, slots=(0,), group_size=1)
    spy = int(episodes[0].prompt.answer) - 1
    for step, (image, text) in enumerate(engine.read[:6]):
        assert text.count(": sum") == step
        assert text.startswith("the spy" if step % 3 == spy else "a citizen")
        picture = TASK[0].info["altered"] if step % 3 == spy else TASK[0].images[0]
        assert np.array_equal(image, picture)
    assert [e.role for e in episodes] == ["spy" if player == spy else "citizen" for player in range(3)]
    assert [len(e.turns) for e in episodes] == [2, 2, 2]
    # two right votes: v = 2 for the spy and 0 for the others
    assert [e.info["earned"] for e in episodes] == pytest.approx(clue_rewards([2 * (p == spy) for p in range(3)], spy))
    assert episodes[0].info["counts"] == {"game/right": 2}
    assert [list(scores) for scores in GameReward({"earned": 1.0}).scores(episodes)] == [["earned"]] * 3


def test_games_of_a_prompt_have_their_own_spies():
    episodes = play(game(phase="clues"), slots=(0,), group_size=12)
    assert [e.sample_index for e in episodes] == list(range(36))
    assert {e.sample_index % 3 for e in episodes if e.role == "spy"} == {0, 1, 2}


def test_baselines_follow_the_rewards_of_roles_and_are_saved():
    """From 0 with .95: .05 * -.2 for the spy, and .05 times .1 for citizens."""
    rollout = game(phase="clues", switch={"min_steps": 1, "max_steps": 1})
    episodes = play(rollout, slots=(0,), group_size=1)
    assert all(not float(t.completion.extra["role_baseline"]) for e in episodes for t in e.turns)
    rollout.observe([[e.light() for e in episodes]])
    assert rollout.baselines == pytest.approx({"spy": -0.01, "citizen": 0.005})
    assert rollout.phases.phase == "votes"
    again = game(phase="clues", switch={"min_steps": 1, "max_steps": 1})
    again.load_state_dict(rollout.state_dict())
    assert again.metrics() == rollout.metrics() and again.metrics()["game/trains_clues"] == 0
    again.phases.phase = "clues"
    later = play(again, slots=(0,), iteration=1, group_size=1)
    by_role = {e.role: float(e.turns[0].completion.extra["role_baseline"]) for e in later}
    assert by_role == pytest.approx({"spy": -0.01, "citizen": 0.005})


def test_a_failed_clue_makes_errors_of_its_game_alone():
    class Fails(Players):
        def _one(self, request):
            done = super()._one(request)
            return replace(done, ended="error") if np.array_equal(self.read[-1][0], TASK[3].images[0]) else done

    for phase in ("clues", "votes"):
        episodes = play(game(phase=phase), Fails())
        assert {e.ended for e in episodes if e.group == 3} == {"error"}
        assert {e.ended for e in episodes if e.group == 0} == {"done"}
    failed = Episode(Prompt("p/0"), 3, 0, ended="error", info={"error": "x"})
    rollout = game(phase="clues")
    rollout.observe([[failed]])
    assert rollout.baselines == {"spy": 0.0, "citizen": 0.0}


def test_a_task_without_another_picture_is_refused():
    with pytest.raises(ValueError, match=r"needs one image and another one as info\['altered'\]"):
        game().check_task(Counting(count=5))
    game().check_task(TASK)
    with pytest.raises(ValueError, match=r"rollout\.vote_prompt='who\?' lacks \{clues\}"):
        SpyGame(vote_prompt="who?")


def test_the_altered_scene_differs_in_one_object_and_the_start_shows_a_clue_that_it_made_wrong():
    task = replace(TASK, stages=["count", "clue", "vote"], players=3)
    for index in range(30):
        scene = task.problem(index).scene
        altered = task.alter(scene, f"{task.name}/train/{index}")
        differing = [(a, b) for a, b in zip(scene.shapes, altered.shapes, strict=True) if a != b]
        assert len(differing) == 1 and differing[0][0].box == differing[0][1].box
        prompt, text = task[index], task[index].messages[0]["content"][1]["text"]
        assert np.array_equal(prompt.info["altered"], altered.render()) and task.demonstrate(index) == str(
            prompt.answer
        )
        names = {colour[0]: colour for colour in task.colours}
        if task.stage(index) == "clue":
            assert count_colour(scene, names[prompt.answer[0]]) == int(prompt.answer[1:])
        if task.stage(index) == "vote":
            lines = [line.split(": ") for line in text.splitlines() if ": " in line]
            wrong = [player for player, clue in lines if count_colour(scene, names[clue[0]]) != int(clue[1:])]
            assert wrong == [prompt.answer] and task.score(reply(prompt, prompt.answer))["exact"] == 1
    assert {task.on("held_out").stage(n) for n in range(9)} == {"count"}
    with pytest.raises(ValueError, match="stages must be of count, clue, vote"):
        replace(TASK, stages=["ask"])
