"""Environments of others train as they are, or are refused with their id, the cause and what helps."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from mmrl.api.environments import sim_arguments
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from sims.gym import GymSim
from sims.gym.guard import Guard
from sims.gym.vector import GymVectorEnv
from sims.host.interface import convert_scores
from sims.host.registered import Registered
from sims.host.vector import GuestVectorEnv
from sims.workers.sim import WorkerSim
from tests.sims.odd_environments import IMAGE, REFUSED, TRAINS, Odd, SameBuffer, id_of
from tests.tiny_recipes import QUIET

PPO = (
    "recipe=ppo_control",
    "trainer.max_epochs=1",
    "rollout.num_envs=2",
    "rollout.horizon=12",
    "data.update_epochs=1",
    "data.num_minibatches=2",
)
SAC = ("recipe=sac", "trainer.max_epochs=2", "rollout.horizon=8", "data.learning_starts=8", "data.gradient_steps=2")
TINY = (
    *QUIET,
    "trainer.callbacks.checkpoint=null",
    "trainer.callbacks.export=null",
    "trainer.check_val_every_n_epoch=1",
    "data.evaluation.count=2",
    "sim.max_episode_steps=12",
)


def fit(folder, name, *words):
    CLI(to_lightning(compose([*words, *TINY, f"sim.id={name}", f"run_dir='{folder}'"]))).fit()


def test_the_tables_have_enough_environments():
    assert len(TRAINS) >= 15 and len(REFUSED) >= 15


@pytest.mark.parametrize("name", TRAINS)
def test_its_own_spaces_are_read_as_in_training(name):
    sim = GymSim(id_of(name))
    view, adapted, outer = sim.outer_view(), sim.make_env(), sim.make_registered()
    expected, _ = adapted.reset(seed=3)
    observation, info = outer.reset(seed=3)
    masks = {"info": lambda: info["action_mask"], "method": lambda: outer.get_wrapper_attr("action_masks")()}
    source = sim.inspect()
    adapted.action_space.seed(0)
    for _ in range(4):
        assert outer.observation_space.contains(observation)
        mask = masks[source]() if source in masks else None
        if mask is not None:
            with pytest.raises(ValueError, match="give action_masks="):
                view.read(observation)
        read = view.read(observation, mask)
        assert adapted.observation_space.contains(read)
        assert all(
            map(np.array_equal, *(parts.values() if isinstance(parts, dict) else [parts] for parts in (read, expected)))
        )
        legal = read["action_mask"] if isinstance(read, dict) and "action_mask" in read else None
        action = adapted.action_space.sample() if legal is None else int(np.argmax(legal))
        decoded = view.decode(action)
        assert outer.action_space.contains(decoded)
        expected, *_ = adapted.step(action)
        observation, _, _, _, info = outer.step(decoded)
    adapted.close()
    outer.close()


@pytest.mark.parametrize("workers", [None, 1])
def test_an_environment_that_can_draw_is_filmed(workers):
    sim = GymSim("CartPole-v1") if workers is None else WorkerSim(GymSim("CartPole-v1"), workers)
    assert sim.contract() == GymSim("CartPole-v1").contract()
    env = sim.enable_drawing().make(1)
    env.reset(seed=[0])
    assert env.render(0, 32).shape == (32, 32, 3)
    env.close()


def test_an_environment_that_draws_nothing_stays_as_it_is():
    sim = GymSim(id_of("discrete"))
    assert sim.enable_drawing() is sim


@pytest.mark.parametrize("name", TRAINS)
def test_it_trains(name, tmp_path, caplog):
    sizes = TRAINS[name][1]
    stated = GymSim(id_of(name)).sizes()
    assert {key: stated[key] for key in sizes} == sizes
    fit(tmp_path / "ppo", id_of(name), *PPO)
    assert "failed" not in caplog.text  # every action that was played is one of the environment's
    assert ("whole numbers" in name) == ("rounded" in caplog.text)
    if stated["kind"] == "gaussian":
        fit(tmp_path / "sac", id_of(name), *SAC)
        assert "failed" not in caplog.text


def test_an_actor_reads_pixels(tmp_path):
    gymnasium.register("odd/PixelsWithReals-v0", entry_point=lambda: Odd(IMAGE, spaces.Box(-1, 1, (2,))))
    fit(tmp_path, "odd/PixelsWithReals-v0", *SAC)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Taxi-v3", "CartPole-v1", "MountainCar-v0", "Pendulum-v1"])
def test_environments_of_gymnasium_train(name, tmp_path):
    if name not in gymnasium.registry:
        name = name.replace("v3", "v4")
    fit(tmp_path, name, *PPO)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    with pytest.raises(ValueError) as refused:
        GymSim(id_of(name)).sizes()
    message = str(refused.value)
    assert message.startswith(f"sim.id='{id_of(name)}'")
    for words in REFUSED[name][1]:
        assert words in message


@pytest.mark.parametrize("words", [(), ("sim.workers=2",)])
def test_a_refusal_comes_before_anything_is_built(words, tmp_path):
    with pytest.raises(ConfigError, match=r"sim\.id='odd/RewardIsNone-v0': the reward must be one number, got None"):
        name = id_of("reward is None")
        to_lightning(compose(["recipe=ppo_control", f"sim.id={name}", f"run_dir='{tmp_path}'", *words]))
    assert not list(tmp_path.iterdir())


def test_numbered_actions_are_refused_by_actors_of_real_numbers(tmp_path):
    with pytest.raises(ConfigError, match=r"sim\.id=CartPole-v1: its actions are numbered.*recipe=ppo_control"):
        to_lightning(compose(["recipe=sac", "sim.id=CartPole-v1", f"run_dir='{tmp_path}'"]))


def test_what_cannot_be_repeated_is_accepted_when_it_is_said():
    assert GymSim(id_of("own random numbers"), repeatable=False).sizes()["observation_dims"] == 3


def test_no_action_that_is_not_legal_is_played_by_a_policy_that_ignores_its_observation():
    venv = GymSim(id_of("mask in infos")).make(2)
    observation, _ = venv.reset(seed=[0, 1])
    assert observation["action_mask"].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    observation, *_, infos = venv.step(np.array([0, 1]))
    assert observation["action_mask"].tolist()[0] == [0, 1, 0, 0] and "not legal" in infos["error"][1]


def test_names_of_the_interface_in_foreign_infos_mean_nothing():
    venv = GymSim(id_of("names of mmrl in infos")).make(2)
    venv.reset(seed=[0, 1])
    for _ in range(12):
        *_, infos = venv.step(np.array([0, 1]))
        assert not {"error", "scores", "executed", "task", "final_obs"} & set(infos)


@pytest.mark.parametrize("form", ["array", "dict"])
def test_the_final_observation_of_one_buffer_is_not_that_after_the_reset(form):
    class Nested(SameBuffer):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Dict({"a": self.observation_space, "b": IMAGE_OF_ONE})

        def observe(self):
            return {"a": super().observe(), "b": np.full((18, 18, 3), self.time, np.uint8)}

    IMAGE_OF_ONE = gymnasium.spaces.Box(0, 255, (18, 18, 3), np.uint8)
    name = f"odd/OneBuffer{form}-v0"
    gymnasium.register(name, entry_point=SameBuffer if form == "array" else Nested)
    venv = GymSim(name, autoreset="same_step").make(2)
    venv.reset(seed=[0, 1])
    for _ in range(10):
        observation, *_, infos = venv.step(np.array([0, 1]))
    state = observation if form == "array" else observation["state"]
    final = [row if form == "array" else row["state"] for row in infos["final_obs"]]
    assert state.ravel().tolist() == [0, 0] and np.ravel(final).tolist() == [10, 10]


def test_an_environment_of_one_buffer_that_fails_keeps_the_observation_before():
    from sims.gym.guard import Guard

    class Diverging(SameBuffer):
        def observe(self):
            self.buffer[:] = np.nan if self.time == 2 else self.time
            return self.buffer

    guard = Guard(Diverging)
    guard.reset(seed=0)
    guard.step(0)
    observation, *_, info = guard.step(0)
    assert observation.tolist() == [1.0] and "not finite" in info["error"]


def test_whole_numbers_are_rounded_to_the_nearest():
    env = GymSim(id_of("whole numbers as actions")).make_env()
    env.reset(seed=0)
    assert env.step(np.array([0.4, 0.6], np.float32))[1] == 0.5 / 4
    assert env.step(np.array([3.9, 9.0], np.float32))[1] == 1.0


class Changing(Odd):
    """Goes wrong at its fifth step."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def observe(self):
        return np.zeros(4, np.float32) if self.fault == "shape" and self.time == 5 else super().observe()

    def reward(self, action):
        return {"None": None, "array": np.ones(1), "text": "1"}.get(self.fault, 1.0) if self.time == 5 else 1.0

    def info(self):
        return {"a": [1, {"x": 1}, "b", 2**80][self.time % 4]} if self.fault == "infos" else {}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("fault", ["shape", "None", "array", "text", "infos"])
def test_what_goes_wrong_later_is_an_error_of_its_episode(fault, count):
    makes = [lambda: Guard(lambda: Changing(fault))] * count
    venv = GymVectorEnv(makes, autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED)
    venv.reset(seed=list(range(count)))
    for _ in range(5):
        *_, truncated, infos = venv.step(np.zeros(count, int))
    if fault == "infos":
        assert not truncated.any()
    else:
        words = {"shape": "is none of Box", "None": "got NoneType", "array": "got ndarray", "text": "got str"}
        assert truncated.all() and words[fault] in infos["error"][0]


def test_a_guest_reads_spaces_and_infos_in_the_same_way():
    guest = Registered(id_of("multi-discrete"))
    assert guest.sizes() == GymSim(id_of("multi-discrete")).sizes()
    with pytest.raises(ValueError, match=r"sim\.options\.id='odd/RewardIsNone-v0': the reward must be one number"):
        Registered(id_of("reward is None")).sizes()
    venv = GuestVectorEnv(Registered(id_of("names of mmrl in infos")).make_env, 2)
    venv.reset(seed=[0, 1])
    for _ in range(10):
        *_, infos = venv.step(np.array([0, 1]))
        assert not {"error", "scores", "executed", "task", "final_obs"} & set(infos)


def test_names_that_an_environment_states_are_read():
    class Stating(Odd):
        metadata = {"render_modes": [], "mmrl_infos": ["scores"]}

        def info(self):
            return {"scores": {"share": 1 if self.time % 2 else 0.5}, "error": "mine"}

    guard = Guard(Stating)
    guard.reset(seed=0)
    assert guard.step(0)[4] == {"scores": {"share": 1.0}} and guard.step(0)[4] == {"scores": {"share": 0.5}}
    with pytest.raises(TypeError, match="must be a dict of numbers"):
        convert_scores({"scores": [1]})


def test_environments_in_other_processes_are_the_same():
    sim = GymSim(f"tests.sims.odd_environments:{id_of('dict')}")
    here, there = sim.make(2), WorkerSim(sim, 2).make(2)
    try:
        for venv in (here, there):
            venv.reset(seed=[3, 4])
        one, two = here.step(np.array([0, 1])), there.step(np.array([0, 1]))
        assert all(np.array_equal(one[0][name], two[0][name]) for name in ("state", "image"))
    finally:
        there.close()


def test_two_functions_of_one_name_are_two_environments():
    def make():
        return Odd()

    first = list(sim_arguments("sim", make))
    assert first == list(sim_arguments("sim", make))
    make_again = lambda: Odd()  # noqa: E731
    make_again.__name__ = "make"
    assert list(sim_arguments("sim", make_again)) != first
