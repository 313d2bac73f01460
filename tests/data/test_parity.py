"""Engine and learner agree in honest runs of every kind of policy; a run in which they do not is refused."""

import copy
import logging
from dataclasses import replace

import pytest
import torch
from torch import nn

from mmrl.core.batch import Batch
from mmrl.core.types import Collector, Context, PolicyOutput, Sampling
from mmrl.data.parity import BOUNDS, Parity, measure_staleness, precision_of
from mmrl.engines.local import LocalEngine
from tests.learners.test_resume import RUNS
from tests.tiny_recipes import fit, iterations

EVERY = ("data.parity.every=1", "trainer.check_val_every_n_epoch=10")


class Stale(LocalEngine):
    """Weights never arrive after the first time."""

    def sync(self, policy, version):
        super().sync(copy.deepcopy(policy) if self._policy is None else self._policy, version)


class Older(LocalEngine):
    """Weights never arrive after the first time, and it says so."""

    def sync(self, policy, version):
        if self._policy is None:
            super().sync(policy, version)


class Lukewarm(LocalEngine):
    """Draws with temperature, and reports log-probs without."""

    def sample(self, requests, sampling):
        wanted = torch.tensor(sampling.temperature)
        result = super().sample(requests, replace(sampling, temperature=1.0))
        return [replace(c, extra={**c.extra, "temperature": wanted}) for c in result]


def engine(kind):
    return f"data.engine._target_={__name__}.{kind.__name__}"


# off-policy learning compares nothing with what sampled its rows
ON_POLICY = sorted(set(RUNS) - {"replay", "world_model"})


@pytest.mark.parametrize("name", ON_POLICY)
def test_honest_runs_agree(name, tmp_path):
    """fp32 on a CPU: a cache and other paddings change the order of summation, which is worth less than 1e-4 nats."""
    done = fit(tmp_path, *RUNS[name], *EVERY, "trainer.max_epochs=2")
    for metrics in iterations(done):
        assert 0 <= metrics["parity/mean"] <= metrics["parity/max"] < 1e-4
        assert metrics["rollout/staleness"] == 0


def test_truncated_and_tempered_sampling_agree(tmp_path):
    words = ("sampling.temperature=1.7", "sampling.top_k=5", "sampling.top_p=0.9", *EVERY, "trainer.max_epochs=2")
    assert all(metrics["parity/max"] < 1e-4 for metrics in iterations(fit(tmp_path, *words)))


def test_bfloat16_agrees_within_its_bound(tmp_path):
    done = fit(tmp_path, *EVERY, "trainer.max_epochs=2", "trainer.precision=bf16-mixed")
    assert all(0 < metrics["parity/mean"] < BOUNDS[torch.bfloat16][0] for metrics in iterations(done))


def test_it_looks_at_the_first_iteration_and_then_now_and_then(tmp_path):
    done = fit(tmp_path, "data.parity.every=2", "trainer.check_val_every_n_epoch=10", "trainer.max_epochs=4")
    assert ["parity/max" in metrics for metrics in iterations(done)] == [True, False, True, False]


def test_a_resumed_run_is_looked_at_at_once(tmp_path):
    words = ("data.parity.every=100", "trainer.check_val_every_n_epoch=10", "optimizer.lr=0.05")
    fit(tmp_path / "first", *words, "trainer.max_epochs=1")
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    with pytest.raises(ValueError, match=r"iteration 1: the engine and the learner disagree"):
        fit(tmp_path / "second", *words, "trainer.max_epochs=2", checkpoint, engine(Lukewarm), "sampling.temperature=2")


def test_weights_that_did_not_arrive_are_refused(tmp_path):
    """The first iteration is sampled by the right weights; the next one is not."""
    with pytest.raises(ValueError, match=r"iteration 1: .* weights of version 1: group \d+, row .* choice \d+: engine"):
        fit(tmp_path, *EVERY, "trainer.max_epochs=3", "optimizer.lr=0.05", engine(Stale))


def test_versions_that_are_too_old_are_refused(tmp_path):
    with pytest.raises(ValueError, match="weights of version 0 sampled, but only versions 1 to 1 may"):
        fit(tmp_path, "data.parity=null", "trainer.max_epochs=3", engine(Older))


def test_a_forgotten_temperature_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"iteration 0: .*temperature or truncation"):
        fit(tmp_path, *EVERY, "trainer.max_epochs=1", "sampling.temperature=2", engine(Lukewarm))


def test_demonstrations_are_left_alone(tmp_path):
    done = fit(tmp_path, "recipe=sft", "task=arithmetic", "data.task._target_=tasks.arithmetic.task.Arithmetic",
               "data.reward.weights={exact: 1.0, digits: null}", *EVERY, "trainer.max_epochs=1")  # fmt: skip
    assert not any(name.startswith("parity") or name == "rollout/staleness" for name in done["metrics"][0])


class Off(nn.Module):
    """Finds every choice as likely as it was stored, and a little less."""

    def __init__(self, less, dtype=torch.float32):
        super().__init__()
        self.less = nn.Parameter(torch.tensor(less, dtype=dtype))

    def forward(self, batch):
        logprobs = batch["behavior_logprobs"] - self.less.float()
        return PolicyOutput(logprobs, logprobs)


def rows(n=7):
    return Batch(
        behavior_logprobs=-torch.ones(n, 3),
        action_mask=torch.tensor([[True, True, False]]).expand(n, 3),
        is_demo=torch.zeros(n).bool(),
        **{name: torch.arange(n) for name in ("group", "step", "prompt_id")},
        policy_version=torch.full((n,), 4),
    )


def context(iteration=4, size=1):
    return Context(None, None, None, Sampling(), seed=0, iteration=iteration, world_size=size)


def look(parity, less, batch=None, **kwargs):
    return parity(rows() if batch is None else batch, Off(less), context(**kwargs))


def test_mean_and_max_are_over_sampled_choices_alone():
    batch = rows()
    batch["behavior_logprobs"][:, 2] = torch.nan  # forced
    batch["behavior_logprobs"][0] = torch.nan  # of a demonstration
    batch["is_demo"][0] = True
    batch["behavior_logprobs"][1] = -9.0  # of a log, by weights that are none of this run's
    batch["policy_version"][1] = -1
    actual = look(Parity(every=1), 5e-4, batch)
    assert actual == pytest.approx({"parity/mean": 5e-4, "parity/max": 5e-4}, rel=1e-3)
    assert look(Parity(every=1), 5.0, batch.with_columns(is_demo=torch.ones(7).bool())) == {}


def test_a_warning_lies_between_two_bounds(caplog):
    with caplog.at_level(logging.WARNING):
        look(Parity(every=1), 5e-4)
        assert not caplog.records
        look(Parity(every=1), 5e-3)
        assert "more than 0.001" in caplog.text
    with pytest.raises(ValueError, match=r"version 4: group 0, row \(step\) 0, choice 0: engine -1, learner -1\.05"):
        look(Parity(every=1), 0.05)
    look(Parity(every=1, refuse=0.1), 0.05)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -1.2])
def test_one_choice_is_enough(wrong):
    """Of many: the mean alone would not show it."""
    batch = rows(64)
    batch["behavior_logprobs"] = batch["behavior_logprobs"].clone()
    batch["behavior_logprobs"][63, 1] = wrong

    class Right(Off):
        def forward(self, batch):
            return PolicyOutput(*[torch.full_like(batch["behavior_logprobs"], -1.0)] * 2)

    with pytest.raises(ValueError, match=r"group 63, row .* 63, choice 1"):
        Parity(every=1)(batch, Right(0.0), context())


def test_the_numbers_are_those_of_all_ranks():
    """Each rank looks at its share of the rows; what the others saw counts as well."""
    seen = []

    class Ranks(Collector):
        def gather(self, items):
            seen.append(items[0])
            return [*items, *items]

    here = replace(context(size=2), collector=Ranks())
    actual = Parity(every=1, rows=6)(rows(), Off(5e-4), here)
    assert actual["parity/mean"] == pytest.approx(5e-4, rel=1e-3)
    assert seen[0].count == 3 * 2


def test_the_bound_follows_the_precision():
    cpu = torch.device("cpu")
    assert precision_of(Off(0.0), cpu) is torch.float32
    assert precision_of(Off(0.0, torch.bfloat16), cpu) is torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert precision_of(Off(0.0), cpu) is torch.bfloat16
        look(Parity(every=1), 0.04)


def test_ages():
    assert measure_staleness(rows(), context(4), 0) == {"rollout/staleness": 0.0}
    assert measure_staleness(rows(), context(6), 2) == {"rollout/staleness": 2.0}
    assert measure_staleness(rows().with_columns(is_demo=torch.ones(7).bool()), context(60), 0) == {}
    for iteration in (3, 7):  # of the future, and older than allowed
        with pytest.raises(ValueError, match="weights of version 4 sampled, but only"):
            measure_staleness(rows(), context(iteration), 2)


def test_refusals():
    for words in ({"every": 0}, {"rows": 0}, {"warn": 0.0}, {"refuse": -1.0}):
        with pytest.raises(ValueError, match=rf"parity\.{next(iter(words))}"):
            Parity(**words)
