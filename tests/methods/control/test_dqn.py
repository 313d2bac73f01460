"""DQN: targets, loss and actions by hand, tabular Q-learning by loops, and optimal values in closed form."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn.functional import huber_loss
from torch.testing import assert_close

import mmrl
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.learners.phases.base import UpdateContext
from mmrl.learners.phases.polyak_update import PolyakUpdate
from mmrl.methods.control.dqn import ActionValues, ClippedTDLoss, QLearningTarget
from mmrl.policies.control.q_network import QNetworkPolicy
from tests.laws.example import Example
from tests.tiny_recipes import fit

LAWS = [Example(ClippedTDLoss(0.3))]
GAMMA = 0.5
ONE = torch.ones(1, 1, dtype=torch.bool)


def tabular(values, **options) -> QNetworkPolicy:
    """A Q-network without hidden layers: with one-hot states its weights are the table Q [states, actions]."""
    table = torch.as_tensor(values, dtype=torch.float32)
    policy = QNetworkPolicy(len(table), table.shape[1], hidden=(), **options)
    with torch.no_grad():
        policy.head.weight.copy_(table.T)
        policy.head.bias.zero_()
    return policy


def context(models, minimize=None) -> UpdateContext:
    return UpdateContext(models, torch.zeros, minimize, lambda metrics: None)


@pytest.mark.parametrize("double, value", [(False, 8.0), (True, 1.0)])
def test_targets_by_hand(double, value):
    """Q(s') = (1, 6, 3) chooses action 1, which Q_target(s') = (8, 1, 2) values 1; its own largest is 8."""
    batch = Batch(**{"next.state": torch.ones(2, 1)}, reward=torch.tensor([0.5, 0.5]), discount=torch.tensor([0.9, 0]))
    models = {"policy": tabular([[1, 6, 3]]), "target_policy": tabular([[8, 1, 2]])}
    returns = QLearningTarget(double)(batch, context(models))["returns"]
    assert_close(returns, torch.tensor([[0.5 + 0.9 * value], [0.5]]))  # nothing follows a terminal state
    assert not returns.requires_grad


@pytest.mark.parametrize("double, value", [(False, 2.0), (True, 1.0)])
def test_no_target_has_the_value_of_an_action_that_is_not_legal(double, value):
    """Legal are 1 and 2: Q prefers 1, Q_target 2. Where nothing is legal, behind an end, all are."""
    mask = torch.tensor([[0, 1, 1], [0, 0, 0]], dtype=torch.int8)
    batch = Batch(
        **{"next.state": torch.ones(2, 1), "next.action_mask": mask},
        reward=torch.zeros(2),
        discount=torch.tensor([1.0, 0.0]),
    )
    network, target = (tabular([row], action_mask=True) for row in ([7, 6, 3], [8, 1, 2]))
    returns = QLearningTarget(double)(batch, context({"policy": network, "target_policy": target}))["returns"]
    assert_close(returns, torch.tensor([[value], [0.0]]))


def test_the_loss_is_hubers_and_its_gradient_the_clipped_error():
    """Errors 3 and -0.5: 1 (3 - 1/2) = 2.5 with slope 1, and 0.25 / 2 with slope -0.5."""
    q = torch.tensor([[[4.0]], [[0.5]]], requires_grad=True)
    batch = Batch(action_mask=torch.ones(2, 1, dtype=torch.bool), returns=torch.tensor([[1.0], [1.0]]))
    out = PolicyOutput(torch.zeros(2, 1), torch.zeros(2, 1), extra={"q": q})
    loss = ClippedTDLoss()(out, batch)
    assert_close(loss, torch.tensor([[2.5], [0.125]]))
    loss.sum().backward()
    assert_close(q.grad.flatten(), torch.tensor([1.0, -0.5]))
    for delta in (0.1, 2.0):
        expected = huber_loss(q[..., 0], batch["returns"], reduction="none", delta=delta)
        assert_close(ClippedTDLoss(delta)(out, batch), expected)


def test_a_dueling_network_adds_the_value_to_centred_advantages():
    """V = 2 and A = (1, 3, -1), whose mean is 1: Q = (2, 4, 0)."""
    policy = tabular([[1, 3, -1]], dueling=True)
    with torch.no_grad():
        policy.value_head.weight.fill_(1.5)
        policy.value_head.bias.fill_(0.5)
    assert_close(policy.q_values({"state": torch.ones(1, 1)}), torch.tensor([[2.0, 4.0, 0.0]]))


def test_epsilon_greedy_by_hand():
    """Epsilon 0.3, three legal actions of four: 0.7 + 0.1 for the best legal one, 0.1 for two, 0 for the largest Q."""
    policy = tabular([[1, 2, 9, 0]], action_mask=True)
    n = 20_000
    observation = {"state": torch.ones(n, 1), "action_mask": torch.tensor([[1, 1, 0, 1]]).expand(n, 4)}
    done = policy.act(observation, Sampling(temperature=0.3), Noise(range(n)))
    probabilities = torch.tensor([0.1, 0.8, 0.0, 0.1])
    frequencies = torch.bincount(done.action[:, 0], minlength=4) / n
    assert_close(frequencies, probabilities, atol=0.012, rtol=0)  # four standard errors of 0.8
    assert frequencies[2] == 0
    assert_close(done.behavior_logprobs, probabilities.log()[done.action])
    columns = {f"obs.{name}": column for name, column in observation.items()}
    out = policy(Batch(**columns, action=done.action, temperature=torch.full((n,), 0.3)))
    assert_close(out.logprobs, done.behavior_logprobs)
    assert_close(out.entropy[0], -(probabilities * probabilities.log().clamp(min=-99)).sum(0, keepdim=True))
    greedy = policy.act(observation, Sampling(decode="argmax"), Noise(range(n)))  # whatever epsilon is
    assert (greedy.action == 1).all() and greedy.output == [1] * n
    uniform = policy.act_uniformly(observation, Noise(range(n)))
    frequencies = torch.bincount(uniform.action[:, 0], minlength=4) / n
    assert_close(frequencies, torch.tensor([1, 1, 0, 1]) / 3, atol=0.014, rtol=0)


@pytest.mark.parametrize("double", [False, True])
def test_updates_are_those_of_tabular_q_learning(double):
    """Gradient steps of size 0.3 on one transition each, against loops over a table; targets are 7 updates old."""
    rng, states, actions = np.random.default_rng(0), 5, 3
    table = rng.normal(size=(states, actions))
    old, network, target = table.copy(), tabular(table), tabular(table)
    network.head.bias.requires_grad_(False)
    models = {"policy": network, "target_policy": target}
    optimizer = torch.optim.SGD([network.head.weight], lr=0.3)
    copy = PolyakUpdate({"target_policy": "policy"}, tau=1.0)
    for update in range(1, 61):
        s, a, after = rng.integers(states), rng.integers(actions), rng.integers(states)
        reward, discount = 3 * rng.normal(), rng.choice([0.0, 0.9, 0.81])  # the last one of two steps
        # the table
        best = (table if double else old)[after].argmax()
        error = table[s, a] - (reward + discount * old[after, best])
        table[s, a] -= 0.3 * np.clip(error, -1, 1)
        # the phases
        eye = torch.eye(states)
        batch = Batch(
            **{"obs.state": eye[[s]], "next.state": eye[[after]], "action": torch.tensor([[a]]), "action_mask": ONE},
            reward=torch.tensor([reward], dtype=torch.float32),
            discount=torch.tensor([discount], dtype=torch.float32),
        )
        batch = QLearningTarget(double)(batch, context(models))
        optimizer.zero_grad()
        ClippedTDLoss()(ActionValues()(batch, context(models)), batch).sum().backward()
        optimizer.step()
        if update % 7 == 0:
            old = table.copy()
            copy(batch, context(models))
        assert_close(network.head.weight.T.double().detach(), torch.from_numpy(table), atol=1e-4, rtol=0)


class Chain(gymnasium.Env):
    """States 0 to 3: action 0 leads left, 1 right; behind state 3 is the end, with reward 1. Action 2 is not legal."""

    action_space = spaces.Discrete(3)
    observation_space = spaces.Dict({"state": spaces.Box(0, 1, (4,), np.float32), "action_mask": spaces.MultiBinary(3)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return self.look(), {}

    def look(self):
        return {"state": np.eye(4, dtype=np.float32)[min(self.place, 3)], "action_mask": np.array([1, 1, 0], np.int8)}

    def step(self, action):
        assert action != 2, "an action that is not legal was taken"
        self.place, self.time = max(self.place + (1 if action == 1 else -1), 0), self.time + 1
        over = self.place == 4
        return self.look(), float(over), over, self.time == 20 and not over, {}


gymnasium.register("tests/QChain-v0", entry_point=Chain)
CHAIN = (
    "sim.id=tests/QChain-v0",
    "policy.hidden=[]",
    "data.evaluation.count=2",
    "data.rollout.horizon=64",
    "data.learning_starts=128",
    f"data.replay.gamma={GAMMA}",
    "data.replay.batch_size=32",
    "model.phases.q.optimizer.lr=5e-2",
    "model.phases.polyak_update.every=10",
    "trainer.callbacks.last.every_n_epochs=1",
)


def test_the_recipe_learns_the_optimal_values_of_a_chain(tmp_path):
    """V*(s) = gamma^(3 - s), so Q*(s, right) = gamma^(3 - s) and Q*(s, left) = gamma V*(max(s - 1, 0))."""
    whole = fit(
        tmp_path / "run",
        "recipe=dqn",
        *CHAIN,
        "model.phases.target.double=true",
        "data.gradient_steps=200",
        "trainer.max_epochs=5",
    )
    policy = mmrl.load_policy(tmp_path / "run")
    place = torch.arange(4)
    optimal = torch.stack([GAMMA ** (4 - (place - 1).clamp(min=0)), GAMMA ** (3 - place.float())], 1)
    mask = torch.ones(4, 3, dtype=torch.int8)
    q = policy.policy.q_values({"state": torch.eye(4), "action_mask": mask}).detach()
    assert_close(q[:, :2], optimal, atol=0.02, rtol=0)
    assert whole["metrics"][-1]["train/q/td/q"] > 0 and whole["metrics"][-1]["sim_errors"] == 0
    env = gymnasium.make("tests/QChain-v0")
    observation, _ = env.reset(seed=0)
    assert policy.predict(observation)[0] == 1


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    words = (
        "recipe=dqn",
        *CHAIN,
        "policy.dueling=true",
        "data.gradient_steps=12",
        "policy.hidden=[8]",
        "data.replay.n_steps=3",
    )
    whole = fit(tmp_path / "whole", *words, "trainer.max_epochs=4")
    fit(tmp_path / "first", *words, "trainer.max_epochs=3")
    torch.manual_seed(99)
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = fit(tmp_path / "second", *words, "trainer.max_epochs=4", checkpoint)
    for part in ("weights", "optimizer"):
        assert_close(resumed[part], whole[part], atol=0, rtol=0)
    count = len(resumed["metrics"])
    assert 0 < count < len(whole["metrics"])
    assert_close(resumed["metrics"], whole["metrics"][-count:], atol=0, rtol=0, equal_nan=True)


def test_a_saved_policy_is_the_same(tmp_path):
    policy = QNetworkPolicy(3, 4, hidden=[8], dueling=True)
    policy.save_pretrained(tmp_path)
    state = {"state": torch.randn(5, 3)}
    assert torch.equal(QNetworkPolicy(path=str(tmp_path)).q_values(state), policy.q_values(state))
    with pytest.raises(ValueError, match="was saved with"):
        QNetworkPolicy(actions=5, path=str(tmp_path))


def test_refusals(tmp_path):
    for name, form in (("Pendulum-v1", "are real numbers"), ("tests/QPair-v0", "are several numbers")):
        with pytest.raises(ConfigError, match=rf"sim\.id={name}: its actions {form}.*recipe=ppo_control"):
            to_lightning(compose(["recipe=dqn", f"sim.id={name}", f"run_dir='{tmp_path}'"]))
    policy = tabular([[1, 2]])
    with pytest.raises(ValueError, match="epsilon"):
        policy.check_sampling(Sampling(temperature=1.5))
    with pytest.raises(ValueError, match=r"lower sampling\.temperature"):
        policy.act({"state": torch.ones(1, 1)}, Sampling(top_k=1), Noise([0]))
    with pytest.raises(ValueError, match="numbered"):
        QNetworkPolicy(3, [2, 2])
    with pytest.raises(ValueError, match=r"set policy\.actions"):
        policy.check_spaces(spaces.Box(0, 1, (1,)), spaces.Discrete(3))
    with pytest.raises(ValueError, match="have none"):
        tabular([[1, 2]], action_mask=True).check_spaces(spaces.Box(0, 1, (1,)), spaces.Discrete(2))


class Pair(Chain):
    """Two numbers as an action."""

    action_space = spaces.MultiDiscrete([2, 2])
    observation_space = spaces.Box(0, 1, (4,), np.float32)

    def look(self):
        return super().look()["state"]

    def step(self, action):
        return super().step(int(action[0]))


gymnasium.register("tests/QPair-v0", entry_point=Pair)
