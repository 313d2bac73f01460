"""RL-100's offline stage: the gate and AM-Q by hand, advantages of recorded states, and runs of seconds."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Prompt, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.learners.phases.base import UpdateContext
from mmrl.methods.robots.rl100_offline import (
    ModelGate,
    OfflineModels,
    RecordedStates,
    TransitionLoss,
    TransitionModel,
    TransitionOutput,
    accepts,
    estimate_return,
)
from mmrl.objectives.policy_chain import ChainSurrogate
from mmrl.policies.control.chains.denoising import DenoisingPolicy
from mmrl.policies.control.tanh_mean import TanhMeanPolicy
from mmrl.policies.vla.chains import DDIM
from tests.tiny_recipes import QUIET


class Sum(torch.nn.Module):
    """Critics Q_1 = s + a and Q_2 = s + a + 1 of one number each, [N, 1, 2]."""

    def forward(self, state, action):
        q = state + action
        return torch.stack([q, q + 1], dim=-1)


class Half(torch.nn.Module):
    """V = s / 2, [N, 1]."""

    def forward(self, state):
        return state / 2


class Step(torch.nn.Module):
    """s' = s + a."""

    def forward(self, state, action):
        return state + action


TOY = OfflineModels(Half(), Sum(), Step())


@pytest.mark.parametrize(
    ("before", "after", "accepted"),
    [
        (10.0, 10.6, True),  # delta 0.5, gain 0.6
        (10.0, 10.4, False),
        (10.0, 10.5, True),
        (-10.0, -9.6, False),  # delta is a share of |J|: gain 0.4
        (-10.0, -9.4, True),
        (0.0, 0.0, True),
    ],
)
def test_the_gate_asks_for_a_share_of_the_return(before, after, accepted):
    assert accepts(before, after, 0.05) is accepted


def test_the_return_is_the_sum_of_q_along_the_models_rollouts():
    """a = 0.5: from 0 the states are 0, .5, 1 and Q is .5, 1, 1.5; from 1 Q is 1.5, 2, 2.5; the mean is (3 + 6) / 2.

    With a = t the states from 0 are 0, 0, 1 and Q is 0, 1, 3; from 1 Q is 1, 2, 4; the mean is (4 + 7) / 2.
    """
    states = torch.tensor([[0.0], [1.0]])
    assert estimate_return(lambda s, t: torch.full_like(s, 0.5), TOY, states, 3) == 4.5
    assert estimate_return(lambda s, t: torch.full_like(s, t), TOY, states, 3) == 5.5
    assert estimate_return(lambda s, t: torch.full_like(s, 0.5), TOY, states, 1) == 1.0


def test_the_advantage_is_the_smallest_q_minus_v():
    """s = 1, a = .2: Q = 1.2 and 2.2, V = .5."""
    assert_close(TOY.advantage(torch.tensor([[1.0]]), torch.tensor([[0.2]])), torch.tensor([0.7]))


@pytest.mark.parametrize(("advantage", "terms"), [(2.0, [2.2, 2.030226]), (-2.0, [-2.210342, -2.030226])])
def test_one_advantage_for_all_transitions_of_a_chain(advantage, terms):
    """Transitions at x = .3 and .1, old means 0, new ones .1 and .05, s = .5: log-ratios (x^2 - (x - mean)^2) / (2 s^2)
    = .05 / .5 = .1 and .0075 / .5 = .015, ratios 1.105171 and 1.015113; clipped to [.9, 1.1]: min(2 u, 2.2)."""
    x, means = torch.tensor([[0.3, 0.1]]), torch.tensor([[0.1, 0.05]])
    old, new = (torch.distributions.Normal(mean, 0.5).log_prob(x) for mean in (torch.zeros(1, 2), means))
    batch = Batch(
        action=x[..., None],
        action_mask=torch.ones(1, 2, dtype=torch.bool),
        behavior_logprobs=old,
        old_logprobs=old,
        advantages=torch.full((1, 2), advantage),
    )
    term = ChainSurrogate(chunk=1, clip_low=0.1, clip_high=0.1)
    assert_close(-term(PolicyOutput(new, new), batch), torch.tensor([terms]), atol=1e-6, rtol=0)


# ------------------------------------------------------------------------------- the gate as a callback


class Scripted(ModelGate):
    """Measures what the weight itself says."""

    def measure(self, policy):
        return float(policy.weight.detach())


def gate_after(updates, **options):
    """The weight of a policy after updates, each judged, that begin at 10; and its gate and reports."""
    policy = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(policy.weight, 10.0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
    reports = []
    learner = SimpleNamespace(policy=policy, report=reports.append)
    trainer = SimpleNamespace(current_epoch=0, max_epochs=len(updates), optimizers=[optimizer])
    gate = Scripted("critics.ckpt", "episodes.npz", every=1, **options)
    gate.value = gate.measure(policy)
    gate._store(trainer, policy)
    for number, update in enumerate(updates):
        policy.weight.grad = torch.ones_like(policy.weight)
        optimizer.step()
        with torch.no_grad():
            policy.weight.fill_(update)
        trainer.current_epoch = number
        gate.on_train_epoch_end(trainer, learner)
    return float(policy.weight.detach()), gate, reports, optimizer


def test_refused_updates_are_taken_back_with_the_moments():
    """10 -> 10.6 is accepted; 10.6 -> 11.0 gains .4 < .53 and is refused; 10.6 -> 11.2 gains .6."""
    weight, gate, reports, optimizer = gate_after([10.6, 11.0])
    assert weight == pytest.approx(10.6) and (gate.accepted, gate.refused) == (1, 1)
    assert [report["gate/accepted"] for report in reports] == [1.0, 0.0]
    assert optimizer.state_dict()["state"][0]["step"] == 1  # of two steps, the accepted one is left
    weight, gate, *_ = gate_after([10.6, 11.0, 11.2])
    assert weight == pytest.approx(11.2) and gate.value == pytest.approx(11.2)


def test_without_a_gate_worse_updates_stay():
    weight, gate, *_ = gate_after([10.6, 9.0], min_gain=None)
    assert weight == 9.0 and (gate.accepted, gate.refused, gate.value) == (2, 0, 9.0)


def test_only_every_few_iterations_are_judged_and_the_last_one():
    gate = Scripted("critics.ckpt", "episodes.npz", every=2)
    gate.value, judged = 10.0, []
    gate.measure = lambda policy: judged.append(1) or 20.0 * len(judged)
    gate._store = lambda trainer, policy: None
    learner = SimpleNamespace(policy=None, report=lambda numbers: None)
    for epoch in range(5):
        gate.on_train_epoch_end(SimpleNamespace(current_epoch=epoch, max_epochs=5, optimizers=[]), learner)
    assert len(judged) == 3  # after 2, 4 and 5 iterations


def test_a_resumed_gate_knows_what_it_accepted():
    _, gate, *_ = gate_after([10.6, 11.0])
    other = Scripted("critics.ckpt", "episodes.npz")
    other.load_state_dict(gate.state_dict())
    assert (other.value, other.accepted, other.refused) == (gate.value, 1, 1)
    assert_close(other._weights["weight"], gate._weights["weight"])


# ------------------------------------------------------------------------------- the models


def test_the_transition_model_learns_where_there_is_a_next_state():
    """f = 0: s' - s is (1, 3) in the first row, error (1 + 9) / 2 = 5; the second one ended, and has none."""
    policy, model = TanhMeanPolicy(2, 1, hidden=[4]), TransitionModel(2, 1, [4])
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    batch = Batch(
        {"obs.state": torch.zeros(2, 2), "next.state": torch.tensor([[1.0, 3.0], [7.0, 7.0]])},
        action=torch.zeros(2, 1, 1),
        action_mask=torch.ones(2, 1, dtype=torch.bool),
        discount=torch.tensor([0.9, 0.0]),
    )
    ctx = UpdateContext({"policy": policy, "transition": model}, torch.zeros, lambda loss: None, lambda numbers: None)
    out = TransitionOutput()(batch, ctx)
    assert_close(TransitionLoss()(out, batch), torch.tensor([[5.0], [0.0]]))


def recording(path, episodes=4, steps=4, dims=3, actions=2):
    """A recording whose state counts control steps."""
    rows = episodes * steps
    rng, last = np.random.default_rng(0), np.arange(rows) % steps == steps - 1
    states = rng.normal(size=(rows, dims)).astype(np.float32)
    states[:, 0] = np.arange(rows)
    np.savez(
        path,
        observations=states,
        actions=rng.uniform(-1, 1, (rows, actions)).astype(np.float32),
        rewards=last.astype(np.float32),
        terminals=last & (np.arange(rows) < rows // 2),
        timeouts=last & (np.arange(rows) >= rows // 2),
    )
    return path


def test_states_are_recorded_ones_and_rewards_are_advantages_of_what_is_played(tmp_path):
    """Q = mean of state and action, V = mean of the state / 2: A by a second formula from the policy's own chunks."""

    class Mean(torch.nn.Module):
        def forward(self, state, action):
            return (state.mean(1) + action.mean(1))[:, None, None]

    class MeanValue(torch.nn.Module):
        def forward(self, state):
            return state.mean(1, keepdim=True) / 2

    torch.manual_seed(0)
    policy = DenoisingPolicy(DDIM(steps=2, levels=4), 3, 2, chunk=2, hidden=[8])
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(None, engine, policy, Sampling(), seed=0, iteration=0)
    rollout = RecordedStates(str(recording(tmp_path / "log.npz")), "critics.ckpt")
    rollout.__dict__["_models"] = OfflineModels(MeanValue(), Mean(), Step())
    episodes = rollout.collect([(slot, Prompt(f"sim/train/{slot}")) for slot in range(40)], ctx)
    rows = {int(episode.turns[0].completion.observation["state"][0]) for episode in episodes}
    assert rows <= set(range(16)) and len(rows) > 10
    for episode in episodes:
        done = episode.turns[0].completion
        state, chunk = done.observation["state"].numpy(), np.clip(done.action[-2:].numpy(), -1, 1)
        expected = state.mean() + chunk.mean() - state.mean() / 2
        assert math.isclose(episode.turns[0].reward, expected, abs_tol=1e-5)


BOX = ("policy.low=-1.0", "policy.high=1.0")
CRITICS = ("method=rl100_critics", "setting=push_states", "policy=tanh_mean", "policy.actions=15", *BOX)
SMALL = (*QUIET, "seed=0", "policy.hidden=[16]", "data.evaluation=null", "trainer.max_epochs=2")


def run(folder, *words):
    cli = CLI(to_lightning(compose([*words, *SMALL, f"run_dir='{folder}'"])))
    cli.fit()
    return cli


@pytest.fixture(scope="module")
def critics(tmp_path_factory):
    """A recording of the simulator's sizes, and critics of it."""
    folder = tmp_path_factory.mktemp("rl100")
    log = recording(folder / "log.npz", steps=7, dims=20, actions=3)
    few = ("data.gradient_steps=3", "data.replay.batch_size=8", "data.replay.capacity=100")
    cli = run(
        folder / "critics",
        *CRITICS,
        f"data.path='{log}'",
        *few,
        "trainer.callbacks.last.every_n_epochs=1",
    )
    return log, folder / "critics/checkpoints/last.ckpt", cli


def test_models_of_a_checkpoint_are_those_that_were_trained(critics):
    _, path, cli = critics
    models = OfflineModels.load(path)
    state, action = torch.randn(5, 20), torch.rand(5, 15) * 2 - 1
    trained = cli.model.models.cpu()
    assert_close(models.q(state, action), trained["target_critic"](state, action)[:, 0].amin(1))
    assert_close(models.value(state), trained["value"](state))
    assert_close(models.transition(state, action), trained["transition"](state, action))
    assert not any(p.requires_grad for p in models.critics.parameters())


def test_a_checkpoint_of_another_run_is_refused(critics, tmp_path):
    from mmrl.runs.checkpoint_file import write_checkpoint

    write_checkpoint({"state_dict": {"models.value.head.bias": torch.zeros(1)}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="method=rl100_critics"):
        OfflineModels.load(tmp_path / "other.ckpt")


@pytest.mark.parametrize("min_gain", ["1000", "null"])
def test_a_run_whose_updates_are_all_refused_ends_as_it_began(critics, tmp_path, min_gain):
    log, path, _ = critics
    words = (
        "method=rl100_offline",
        "setting=push_states",
        f"rollout.path='{log}'",
        f"rollout.critics='{path}'",
        "data.num_prompts=8",
    )
    gate = ("trainer.callbacks.gate.every=1", f"trainer.callbacks.gate.min_gain={min_gain}", "data.num_minibatches=2")
    cli = CLI(to_lightning(compose([*words, *gate, *SMALL, f"run_dir='{tmp_path}'"])))
    before = {name: weight.clone() for name, weight in cli.model.policy.state_dict().items()}
    cli.fit()
    moved = [not torch.equal(weight, before[name]) for name, weight in cli.model.policy.state_dict().items()]
    assert any(moved) is (min_gain == "null")
    refused = next(each for each in cli.trainer.callbacks if isinstance(each, ModelGate)).refused
    assert refused == (0 if min_gain == "null" else 2)
