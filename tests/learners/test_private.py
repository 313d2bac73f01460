"""Private gradients: against a loop over examples, closed forms of epsilon, and uninterrupted runs."""

import math
import sys
from importlib.util import find_spec

import lightning as L
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.learners.privacy import PrivacyAccountant, PrivacyBudget
from mmrl.learners.private import _refuse_processes
from tests.tiny_recipes import COUNTING, QUIET, override, record

HERE = "tests.learners.test_private"
SMALL = tuple(f"policy.config.{size}" for size in ("hidden_size=16", "intermediate_size=32", "num_hidden_layers=1"))
PPO = override(
    (
        *("method=dp_ppo", "setting=sums", *COUNTING, *QUIET, "capture=false", "data.num_prompts=10"),
        *("data.sampling.max_tokens=4", "data.reward.weights={exact: 0.5, digits: 1.0}", "data.evaluation=null"),
        *("model.scheduler=null", "trainer.gradient_clip_val=null", "model.privacy.noise_multiplier=1.0"),
    ),
    SMALL,
)


def run(folder, *more):
    """A run of private PPO with a record of its weights."""
    recorder = f"trainer.callbacks.recorder={{_target_: tests.tiny_recipes.Recorder, folder: '{folder}/record'}}"
    cli = CLI(to_lightning(compose(override([*PPO, recorder, f"run_dir='{folder}'"], more))))
    cli.fit()
    return cli, record(folder)


needs_accountant = pytest.mark.skipif(find_spec("dp_accounting") is None, reason="needs dp-accounting")


# ---------------------------------------------------------------- epsilon


def gaussian_delta(epsilon, mu):
    """Delta of Gaussian differential privacy: Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)."""
    return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def sampled_delta(epsilon, rate, noise):
    """Delta of one Poisson-sampled Gaussian by integration of (P - e^eps Q)+, the larger of both directions."""

    def density(x):
        return rate * norm.pdf(x, 1, noise) + (1 - rate) * norm.pdf(x, 0, noise), norm.pdf(x, 0, noise)

    def excess(first, second):
        def integrand(x):
            return max(density(x)[first] - math.exp(epsilon) * density(x)[second], 0.0)

        return quad(integrand, -12 * noise, 12 * noise, limit=2000, points=[0, 1])[0]

    return max(excess(0, 1), excess(1, 0))


@needs_accountant
def test_epsilon_of_whole_data_sets_is_the_closed_form():
    """T Gaussian steps of multiplier sigma are one with mu = sqrt(T) / sigma. Source: Dong et al., 2019, section 3."""
    accountant = PrivacyAccountant(1e-3)
    accountant.add(1.0, 4.0, 5)
    accountant.add(1.0, 2.0)
    mu = math.sqrt(5 / 16 + 1 / 4)
    assert gaussian_delta(accountant.epsilon(), mu) == pytest.approx(1e-3, rel=5e-3)
    assert accountant.steps == 6


@needs_accountant
def test_epsilon_of_a_sampled_step_is_that_of_an_integral():
    accountant = PrivacyAccountant(1e-3)
    accountant.add(0.1, 0.7)
    assert sampled_delta(accountant.epsilon(), 0.1, 0.7) == pytest.approx(1e-3, rel=5e-3)


@needs_accountant
def test_epsilon_of_many_steps_is_that_of_another_library():
    """30 steps at rate 0.1, sigma 1, delta 1e-3. Opacus 1.6.0: PRV accountant 2.5833 (error 0.01), RDP bound 3.2014."""
    accountant = PrivacyAccountant(1e-3)
    accountant.add(0.1, 1.0, 30)
    assert accountant.epsilon() == pytest.approx(2.5833, abs=0.02) and accountant.epsilon() < 3.2014


@needs_accountant
def test_noise_is_the_least_for_the_target():
    accountant = PrivacyAccountant(1e-3)
    accountant.add(0.2, 2.0, 3)  # what an earlier part of the run spent counts too
    noise = accountant.calibrate(0.2, 4, 1.0)
    assert 0.98 < accountant.epsilon_after(0.2, noise, 4) <= 1.0 < accountant.epsilon_after(0.2, noise * 0.99, 4)
    with pytest.raises(ConfigError, match=r"target_epsilon=900 allows noise below 0\.3 times clip_norm"):
        PrivacyAccountant(1e-3).calibrate(1.0, 1, 900.0)
    accountant.add(0.2, 1.0, 4)
    with pytest.raises(ConfigError, match=r"target_epsilon=1 is spent: 7 steps so far have epsilon"):
        accountant.calibrate(0.2, 4, 1.0)


# ---------------------------------------------------------------- gradients


class ByHand(L.Callback):
    """Before each step compute the clipped gradients of single examples by autograd, and note what the learner has."""

    def __init__(self):
        self.expected: list = []
        self.sums: list = []
        self.noise: list = []

    def on_train_batch_start(self, trainer, learner, batch, batch_idx):
        policy, bound = learner.policy, learner.privacy.clip_norm
        parameters = [p for p in policy.parameters() if p.requires_grad]
        totals = [torch.zeros_like(p) for p in parameters]
        for row in range(batch.rows):
            one = batch.select(torch.tensor([row]))
            out, mask = policy(one), one["action_mask"]
            ratio = (out.logprobs - one["old_logprobs"]).exp() if "old_logprobs" in one else None
            ratio = (out.logprobs - one["behavior_logprobs"]).exp() if ratio is None else ratio
            advantage = one["advantages"]
            surrogate = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            value = 0.5 * learner.objective.terms["value"](out, one)
            loss = (surrogate + value)[mask].mean()
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            gradients = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, parameters)]
            size = math.sqrt(sum(float(g.square().sum()) for g in gradients))
            for total, gradient in zip(totals, gradients):
                total += gradient * min(1.0, bound / size if size else 1.0)
        self.expected.append(totals)

    def on_before_optimizer_step(self, trainer, learner, optimizer):
        self.sums.append([total.clone() for total in learner._sums])

    def on_train_start(self, trainer, learner):
        def note(*_):
            parameters = [p for p in learner.policy.parameters() if p.requires_grad]
            self.noise.append([10 * p.grad - total for p, total in zip(parameters, self.sums[-1])])

        trainer.optimizers[0].register_step_post_hook(note)


@needs_accountant
def test_clipped_gradients_are_those_of_a_loop_and_the_noise_is_normal(tmp_path):
    watcher = f"trainer.callbacks.watcher={{_target_: {HERE}.ByHand}}"
    privacy = ("model.privacy.clip_norm=0.2", "model.privacy.noise_multiplier=1.5")
    cli, _ = run(tmp_path, watcher, *privacy, "trainer.max_epochs=3")
    [seen] = [each for each in cli.trainer.callbacks if isinstance(each, ByHand)]
    assert len(seen.sums) == len(seen.expected) == 3
    for sums, expected in zip(seen.sums, seen.expected):
        assert max(float(total.abs().max()) for total in expected) > 1e-3
        for total, by_hand in zip(sums, expected):
            torch.testing.assert_close(total, by_hand, atol=1e-6, rtol=1e-4)
    noise = torch.cat([part.flatten() for step in seen.noise for part in step])
    assert float(noise.std()) == pytest.approx(0.3, rel=4 / math.sqrt(2 * len(noise)))  # 1.5 * 0.2
    first, second = (torch.cat([part.flatten() for part in step]) for step in seen.noise[:2])
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 4 / math.sqrt(len(first))
    accountant = PrivacyAccountant(1e-5)
    accountant.add(10 / 40, 1.5, 3)  # 10 of the 40 problems of the task
    assert float(cli.trainer.callback_metrics["privacy/epsilon"]) == pytest.approx(accountant.epsilon(), rel=1e-6)


@needs_accountant
@pytest.mark.parametrize("more", [(), ("policy.lora.r=2",)])
def test_micro_batches_change_nothing(tmp_path, more):
    """Of adapters alone those have gradients; their clipped sums are equal too."""
    words = ("trainer.max_epochs=2", "data.group_size=2", "model.privacy.clip_norm=0.1", *more)
    _, whole = run(tmp_path / "whole", *words)
    _, parts = run(tmp_path / "parts", *words, "trainer.accumulate_grad_batches=3")
    for name, value in whole["weights"].items():
        torch.testing.assert_close(value, parts["weights"][name], atol=2e-5, rtol=1e-4)


@needs_accountant
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    """Weights, noise multiplier (computed for four iterations) and epsilon."""
    words = ("model.privacy.noise_multiplier=null", "model.privacy.target_epsilon=1", "trainer.max_epochs=4")
    whole, left = run(tmp_path / "whole", *words, "trainer.callbacks.checkpoint.every_n_epochs=2")
    checkpoint = tmp_path / "whole" / "checkpoints" / "epoch=1.ckpt"
    again, resumed = run(tmp_path / "again", *words, f"ckpt_path='{checkpoint}'")
    assert all(torch.equal(value, resumed["weights"][name]) for name, value in left["weights"].items())
    assert whole.model.accountant.history == again.model.accountant.history
    assert whole.model.noise_multiplier == again.model.noise_multiplier
    assert 0.97 < whole.model.accountant.epsilon() <= 1


@needs_accountant
def test_a_run_stops_before_the_target_and_does_not_go_on(tmp_path):
    """At rate 0.25, sigma 1 and delta 1e-5 two iterations are within the target and three are not."""
    accountant = PrivacyAccountant(1e-5)
    bounds = [accountant.epsilon_after(0.25, 1.0, steps) for steps in (2, 3)]
    words = (f"model.privacy.target_epsilon={sum(bounds) / 2}", "trainer.max_epochs=6")
    cli, _ = run(tmp_path / "first", *words)
    assert cli.trainer.current_epoch == cli.model.accountant.steps == 2
    assert float(cli.trainer.callback_metrics["privacy/epsilon"]) == pytest.approx(bounds[0])
    with pytest.raises(ConfigError, match=r"target_epsilon=.*iteration 2 would spend epsilon"):
        run(tmp_path / "again", *words, f"ckpt_path='{tmp_path}/first/checkpoints/last.ckpt'")


# ---------------------------------------------------------------- refusals


@needs_accountant
@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("data.update_epochs=2",), r"data\.update_epochs is above 1"),
        (("data.num_minibatches=2",), r"data\.num_minibatches is above 1"),
        (("curriculum=shuffled",), r"data\.curriculum does not sample.*curriculum=poisson"),
        (("data.annotators.gae.whiten=true",), r"data\.annotators\.gae uses statistics of several examples"),
        (("model.privacy.delta=0.1",), r"model\.privacy\.delta must be below 1 / 40"),
        (("model.privacy.noise_multiplier=null", "model.privacy.target_epsilon=null"), r"the noise is unknown"),
    ],
)
def test_what_would_break_the_guarantee_is_refused(tmp_path, words, match):
    with pytest.raises((ConfigError, ValueError), match=match):
        run(tmp_path, *words)


def test_several_processes_and_scaled_gradients_are_refused():
    with pytest.raises(ConfigError, match=r"those of one process, and the run has 2; set trainer\.devices=1"):
        _refuse_processes(L.Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False))


def test_a_missing_accountant_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"needs dp-accounting.*pip install 'mmrl-lightning\[private\]'"):
        PrivacyBudget(1e-5, noise_multiplier=1.0)
