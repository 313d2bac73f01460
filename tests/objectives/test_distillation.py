"""The distillation term, and a teacher in a run."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import PolicyOutput
from mmrl.objectives.distillation import GKDLoss
from mmrl.policies.text.policy import TextPolicy
from tests.laws.example import Example
from tests.policies.text.oracle import TINY
from tests.test_recipes import words_of

LAWS = [Example(GKDLoss(beta)) for beta in (0.0, 0.3, 1.0)]


def output(probabilities):
    logprobs = torch.tensor(probabilities).log()
    return PolicyOutput(logprobs[..., 0], logprobs[..., 0], extra={"choice_logprobs": logprobs})


def test_the_term_is_the_divergence_at_every_choice():
    out = output([[[0.5, 0.5], [0.5, 0.5]]])
    out.others["teacher"] = output([[[0.8, 0.2], [0.8, 0.2]]])
    batch = Batch(action_mask=torch.tensor([[True, False]]))
    # as in tests/ops/test_distillation.py
    assert_close(GKDLoss()(out, batch), torch.tensor([[0.050672, 0.0]]), atol=1e-6, rtol=0)


def test_refusals():
    out = output([[[0.5, 0.5]]])
    out.others["teacher"] = output([[[0.5, 0.3, 0.2]]])
    with pytest.raises(ValueError, match="2 ids and the teacher 3"):
        GKDLoss()(out, Batch(action_mask=torch.ones(1, 1).bool()))
    with pytest.raises(ValueError, match=r"gkd_loss\.beta"):
        GKDLoss(1.5)
    with pytest.raises(ConfigError, match=r"term 'distillation' asks for \['teacher'\].*model\.frozen_models"):
        CLI(to_lightning(compose(["recipe=gkd", "model.frozen_models=null"])), build=False)


def test_a_teacher_is_a_checkpoint_and_stays_as_it_is(tmp_path):
    torch.manual_seed(7)
    TextPolicy(config=dict(TINY)).save_pretrained(tmp_path / "teacher")
    words = [*words_of("gkd", tmp_path / "run"), f"teacher.path={tmp_path}/teacher"]
    cli = CLI(to_lightning(compose(words)))
    teacher = cli.model.models["teacher"]
    assert teacher.path == str(tmp_path / "teacher") and not teacher.training
    start = {name: part.clone() for name, part in teacher.state_dict().items()}
    cli.fit()
    assert all(torch.equal(part, start[name]) for name, part in teacher.state_dict().items())
    assert not any(part.requires_grad for part in teacher.parameters())
    assert float(cli.trainer.callback_metrics["train/distillation"]) > 0
