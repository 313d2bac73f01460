"""RL-GPT's rounds: programs that are written, mended and dropped, durations, plain PPO, resumed runs, refusals."""

import json

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.option_gae import option_advantages
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.exploration.rl_gpt.policy import MacroPolicy
from mmrl.methods.exploration.rl_gpt.rollout import RLGPT, MacroEpisodic
from mmrl.methods.exploration.rl_gpt.scripts import ScriptedAgents
from mmrl.policies.control.policy import ControlPolicy
from sims.craft.macros import CraftMacroSim
from sims.task import SimTask
from tests.sims.craft.worlds import TINY, tiny
from tests.tiny_recipes import QUIET, record

SIM = CraftMacroSim(**{**TINY, "slots": 3})
FIRST = len(SIM.action_names)


class Answers:
    """Gives splits and programs in their order, the last ones again and again, and keeps the feedbacks."""

    def __init__(self, splits, programs):
        self.splits, self.programs, self.feedbacks, self.problems = list(splits), list(programs), [], []

    def criticise(self, feedback):
        return "try again"

    def split_task(self, feedback):
        self.feedbacks.append(feedback)
        return self.splits.pop(0) if len(self.splits) > 1 else self.splits[0]

    def write_program(self, action, feedback, program, problem):
        self.problems.append((action.name, problem))
        body = self.programs.pop(0) if len(self.programs) > 1 else self.programs[0]
        return f"```python\ndef act(state):\n    {body}\n```"


def split(*names):
    return json.dumps([{"name": name, "task": name, "codable": True} for name in names])


def play(rollout, iterations=1, episodes=4, policy=None, sim=SIM, start=0):
    """Iterations of a random policy; returns its metrics and the last episodes."""
    torch.manual_seed(0)
    sizes = {name: SIM.sizes()[name] for name in ("observation_dims", "actions", "slots")}
    policy = policy or MacroPolicy(**sizes, hidden=[8])
    engine, task, metrics, played = LocalEngine(), SimTask(sim, 8), [], []
    engine.sync(policy, 0)
    for iteration in range(start, start + iterations):
        ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=iteration)
        played = rollout.collect([(slot, task[slot]) for slot in range(episodes)], ctx)
        for episode in played:
            episode.scores = task.score(episode)
        rollout.observe([[episode] for episode in played])
        metrics.append(rollout.metrics())
    return metrics, played, policy


def test_rounds_of_the_scripts():
    """The first program is mended in the first round; in the second one the critic has a rare item coded."""
    rollout = RLGPT(ScriptedAgents(least=1.0), 2, 2, bootstrap=False)
    metrics, _, policy = play(rollout, 5)
    assert [m["macros/round"] for m in metrics] == [0, 0, 1, 1, 1]
    # first: a split and four answers for three programs; second: the critic, a split, and no room for a fourth program
    assert metrics[0]["macros/answers"] == 5 and metrics[0]["macros/mended"] == 1
    assert all(m["macros/programs"] == 3 and m["macros/given_up"] == 0 for m in metrics)
    assert [program != "" for program in policy.read_programs()] == [True] * 3
    assert "player" not in "".join(policy.read_programs())
    shares = [sum(value for name, value in m.items() if name.startswith("macros/share/")) for m in metrics]
    assert shares == pytest.approx([m["macros/share"] for m in metrics]) and min(shares) > 0


def test_durations_are_the_steps_of_the_decisions():
    rollout = RLGPT(ScriptedAgents(), bootstrap=False, max_envs=3)  # in two waves
    metrics, episodes, policy = play(rollout)
    longest = 0.0
    for episode in episodes:
        durations = [float(turn.completion.extra["durations"]) for turn in episode.turns]
        assert sum(durations) == episode.info["scores"]["decisions"]
        env = SIM.with_programs(policy.read_programs()).make(1)  # played again by themselves
        env.reset(seed=[episode.prompt.info["seed"]])
        for turn, duration in zip(episode.turns, durations):
            _, rewards, *_, infos = env.step([turn.completion.output])
            assert infos["executed"][0] == duration and rewards[0] == turn.reward
        longest = max(longest, *durations)
    assert longest == 20  # walking up, to the cap
    rows = [float(turn.completion.extra["durations"]) for episode in episodes for turn in episode.turns]
    assert metrics[0]["macros/steps"] == sum(rows)
    assert metrics[0]["macros/duration"] == pytest.approx(sum(rows) / len(rows))


def test_the_value_after_a_macro_is_discounted_by_its_steps():
    """Three steps with rewards 0, 0, 1 and gamma .9, a value of 2 before and of 5 after:
    .81 + .729 x 5 - 2 = 2.455."""
    reward, values, durations = torch.tensor([[0.81]]), torch.tensor([[2.0]]), torch.tensor([[3.0]])
    mask = torch.ones(1, 1, dtype=torch.bool)
    advantage = option_advantages(reward, values, durations, mask, torch.tensor([5.0]), 0.9, 0.95)
    assert advantage.item() == pytest.approx(2.455)


def test_a_program_that_fails_in_training_is_mended_in_the_next_round():
    """It is tried with 40 and with 10 steps left, and fails later; until then a failure takes one step."""
    late = 'return ["up"] if state["steps_left"] > 9 else state["x"]'
    agents = Answers([split("walk")], [late, 'return ["up"]'])
    rollout = RLGPT(agents, 2, 1, trials=1, bootstrap=False)
    metrics, *_ = play(rollout, 2)
    assert metrics[0]["macros/failures"] > 0 and metrics[0]["macros/mended"] == 0
    assert agents.problems == [("walk", None), ("walk", "line 2: KeyError: 'x'")]
    assert metrics[1]["macros/failures"] == metrics[0]["macros/failures"] and metrics[1]["macros/mended"] == 1
    first, second = agents.feedbacks
    assert not first.success and second.success["log"] >= 0 and set(second.success) == set(SIM.items)
    assert second.uses["walk"].errors[0] == "line 2: KeyError: 'x'" and 0 < second.uses["walk"].share < 1
    assert second.uses["walk"].steps == 1 and second.advice == "try again"


def test_programs_keep_their_places_and_leave_empty_ones():
    agents = Answers([split("one", "two"), split("two"), split("two", "three")], ['return ["up"]'])
    rollout = RLGPT(agents, 3, 1, bootstrap=False)
    names = []
    for iteration in range(3):
        _, episodes, policy = play(rollout, 1, start=iteration)
        names.append(list(rollout.library.names))
        empty = [FIRST + k for k, program in enumerate(policy.read_programs()) if not program]
        outputs = {turn.completion.output for episode in episodes for turn in episode.turns}
        assert outputs and not outputs & set(empty)
    assert names == [["one", "two"], ["", "two"], ["three", "two"]]
    assert [name for name, _ in agents.problems] == ["one", "two", "three"]


def test_answers_that_stay_unusable_change_nothing():
    agents = Answers([split("walk"), "no list"], ['return ["up"]'])
    rollout = RLGPT(agents, 2, 1, attempts=2, bootstrap=False)
    metrics, *_ = play(rollout, 2)
    assert [m["macros/programs"] for m in metrics] == [1, 1] and len(agents.feedbacks) == 3
    assert agents.feedbacks[-1].refused == ["there is no list in 'no list'"]
    agents = Answers([split("walk")], ["return state['x']"])
    metrics, *_ = play(RLGPT(agents, 1, 1, attempts=2, bootstrap=False), 1)
    assert metrics[0]["macros/programs"] == 0 and metrics[0]["macros/given_up"] == 1
    assert agents.problems == [("walk", None), ("walk", "line 2: KeyError: 'x'")]
    assert metrics[0]["macros/share"] == 0


def test_evaluation_plays_the_programs_of_the_policy():
    _, _, policy = play(RLGPT(ScriptedAgents(), bootstrap=False))
    task, engine = SimTask(SIM, 8, "held_out"), LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(), seed=0, iteration=0, purpose="eval")
    episodes = MacroEpisodic(bootstrap=False).collect([(0, task[0])], ctx)
    assert any(turn.completion.output >= FIRST for turn in episodes[0].turns)
    policy.write_programs([])
    episodes = MacroEpisodic(bootstrap=False).collect([(0, task[0])], ctx)
    assert all(turn.completion.output < FIRST for turn in episodes[0].turns)


TINY_RUN = (
    *("data.num_prompts=4", "data.num_minibatches=1", "data.update_epochs=2", "evaluation.count=2"),
    *("sim.target=table", "sim.max_steps=30", "capture=false", "trainer.check_val_every_n_epoch=1"),
    *("model.scheduler=null", *QUIET),
)


def run(folder, *more):
    recorder = f"trainer.callbacks.recorder={{_target_: tests.tiny_recipes.Recorder, folder: '{folder}/record'}}"
    CLI(to_lightning(compose(["recipe=rl_gpt", *TINY_RUN, f"run_dir='{folder}'", recorder, *more]))).fit()
    return record(folder)


def test_without_agents_it_is_plain_ppo_bit_for_bit(tmp_path):
    """Against rollout and GAE of plain PPO. With gamma and lambda of 1 a duration changes nothing."""
    one = ("data.annotators.gae.gamma=1.0", "data.annotators.gae.gae_lambda=1.0", "trainer.max_epochs=2")
    ours = run(tmp_path / "ours", *one, "rollout.agents=null")
    plain = run(
        tmp_path / "plain",
        *one,
        "rollout=env",
        "rollout.bootstrap=false",
        "data.annotators.gae._target_=mmrl.annotators.gae.GAE",
    )
    for part in ("weights", "optimizer"):
        assert_close(ours[part], plain[part], atol=0, rtol=0)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    short = "rollout.round_iterations=1"
    whole = run(tmp_path / "whole", short, "trainer.max_epochs=3")
    run(tmp_path / "first", short, "trainer.max_epochs=2")
    torch.manual_seed(99)
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = run(tmp_path / "second", short, "trainer.max_epochs=3", checkpoint)
    for part in ("weights", "optimizer"):
        assert_close(resumed[part], whole[part], atol=0, rtol=0)
    names = ("macros/answers", "macros/programs", "macros/round")
    rounds = [tuple(done[name] for name in names) for done in whole["metrics"] if "macros/round" in done]
    assert [each[2] for each in rounds] == [0, 1, 2] and rounds[0][1] == 2 and rounds[-1][1] > 2
    ends = [tuple(done[name] for name in names) for done in resumed["metrics"] if "macros/round" in done]
    assert ends[-1] == rounds[-1]


def test_refusals():
    with pytest.raises(ConfigError, match=r"take sim=craft_macros, and sim\.workers=0"):
        play(RLGPT(), sim=tiny())
    sizes = {name: SIM.sizes()[name] for name in ("observation_dims", "actions")}
    with pytest.raises(ConfigError, match="take policy=macros"):
        play(RLGPT(), policy=ControlPolicy(**sizes, hidden=[8]))
    with pytest.raises(ConfigError, match="take policy=macros"):
        play(RLGPT(), policy=MacroPolicy(**sizes, slots=2, hidden=[8]))
    for name in ("rounds", "round_iterations", "attempts", "trials"):
        with pytest.raises(ValueError, match=rf"rollout\.{name} must be at least 1"):
            RLGPT(**{name: 0})
