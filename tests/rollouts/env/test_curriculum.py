"""Episodes of a fixed horizon begin at the prompts that were selected."""

import pytest

from mmrl.curricula.levels import UniformLevels
from mmrl.distributed import parallel
from mmrl.policies.control.policy import ControlPolicy
from mmrl.rollouts.env.curriculum import CurriculumFixedHorizon
from sims.levels import LevelTask
from tests.rollouts.env.test_fixed_horizon import context, rows_of, same
from tests.sims.levels.test_sim import CLIMB

TASK, POLICY = LevelTask(CLIMB), ControlPolicy(3, 2, hidden=[])


def at(iteration: int, count: int, **where):
    """The context of an iteration, and this process's share of its prompts."""
    ctx = context(TASK, POLICY, iteration, num_prompts=count, **where)
    indices = UniformLevels().select(count, context(TASK, POLICY))
    return [(slot, TASK[index]) for slot, index in enumerate(indices)][ctx.rank :: ctx.world_size], ctx


def episodes_of(segments):
    """Per environment: (steps, gift, number) of the first observation of each episode, in order."""
    out = {}
    for key, rows in rows_of(segments).items():
        states = [tuple(state) for state, _, _ in rows]
        out[key] = [state for k, state in enumerate(states) if k == 0 or states[k - 1] != state]
    return out


def levels(prompts):
    return [pytest.approx(tuple(prompt.info["level"].values()), abs=1e-6) for _, prompt in prompts]


def test_each_environment_plays_its_prompts_in_order():
    prompts, ctx = at(0, 40)
    begun = episodes_of(CurriculumFixedHorizon(2, 30).collect(prompts, ctx))
    expected = levels(prompts)
    for number in range(2):
        played = [state[:2] for state in begun[f"{TASK.name}/env/{number}"]]
        # 30 decisions are at least 6 episodes of at most 5 steps
        assert len(played) >= 6 and played == expected[number::2][: len(played)]


def test_an_episode_goes_on_over_the_end_of_an_iteration_and_the_next_begins_at_a_new_prompt():
    prompts, ctx = at(0, 40)
    rollout, resumed = CurriculumFixedHorizon(1, 7), CurriculumFixedHorizon(1, 7)
    last = episodes_of(rollout.collect(prompts, ctx))[f"{TASK.name}/env/0"][-1]
    resumed.load_state_dict(rollout.state_dict())
    other, ctx = at(1, 40)
    other = other[20:]
    segments = rollout.collect(other, ctx)
    begun = [state[:2] for state in episodes_of(segments)[f"{TASK.name}/env/0"]]
    unfinished = begun[0] == last[:2]
    assert begun[unfinished:] == levels(other)[: len(begun) - unfinished]
    same(resumed.collect(other, ctx), segments)


def test_processes_play_what_one_does(monkeypatch):
    def collect(**where):
        return CurriculumFixedHorizon(4, 12).collect(*at(0, 48, **where))

    whole, known = collect(), []
    monkeypatch.setattr(parallel, "gather", lambda own: known.extend(own) or own)
    for rank in range(2):
        collect(rank=rank, world_size=2)
    monkeypatch.setattr(parallel, "gather", lambda own: known)
    parts = [collect(rank=rank, world_size=2) for rank in range(2)]
    assert [sorted(rows_of(part)) for part in parts] == [
        [f"{TASK.name}/env/{number}" for number in numbers] for numbers in ((0, 2), (1, 3))
    ]
    same(sorted((segment for part in parts for segment in part), key=lambda segment: segment.group), whole)
    with pytest.raises(ValueError, match=r"num_envs=3 and data\.num_prompts=48 must be multiples of the 2 processes"):
        CurriculumFixedHorizon(3, 12).collect(*at(0, 48, rank=0, world_size=2))


def test_too_few_prompts_are_played_again_and_that_is_said_once(caplog):
    prompts, ctx = at(0, 2)
    rollout = CurriculumFixedHorizon(1, 30)
    begun = episodes_of(rollout.collect(prompts, ctx))[f"{TASK.name}/env/0"]
    assert begun[:4] == begun[:2] * 2
    rollout.collect(*at(1, 2))
    assert caplog.text.count("set data.num_prompts=") == 1
