"""Further forward passes that terms name: a model, a context, and a model in a context."""

import pytest
import torch
from torch import Tensor, nn

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import PolicyOutput
from mmrl.learners.learner import Learner
from mmrl.objectives.objective import Objective, Term
from tests.tiny_recipes import QUIET, TEXT


class Marked(nn.Module):
    """Says its own weight times the input."""

    def __init__(self, weight: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, batch: Batch) -> PolicyOutput:
        found = self.weight * batch["obs.x"]
        return PolicyOutput(found, found)


class Asks(Term):
    """Names passes."""

    def __init__(self, *names: str):
        self.names = frozenset(names)

    def others(self) -> frozenset[str]:
        return self.names

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return out.logprobs


def test_each_name_is_a_model_a_context_or_both():
    names = ("reference", "reference@dark", "teacher", "teacher@dark", "dark", "helper", "helper@dark")
    objective, frozen = Objective({"a": Asks(*names)}), {"teacher": Marked(5.0)}
    learner = Learner(Marked(2.0), objective, torch.optim.SGD, reference=True, frozen_models=frozen)
    learner.models["reference"] = Marked(3.0)
    learner.models["helper"] = Marked(7.0)
    learner.auxiliary_models["helper"] = 1e-3
    out = learner.outputs(Batch({"obs.x": torch.ones(1, 1), "other.dark.x": torch.full((1, 1), 10.0)}))
    found = {name: other.logprobs.item() for name, other in out.others.items()}
    assert found == dict(zip(names, (3.0, 30.0, 5.0, 50.0, 20.0, 7.0, 70.0)))
    gradient = {name: other.logprobs.requires_grad for name, other in out.others.items()}
    assert gradient == {name: name in ("dark", "helper", "helper@dark") for name in names}


@pytest.mark.parametrize("name", ["reference@dark", "teacher@hinted"])
def test_a_model_or_a_context_that_is_not_there_is_refused(name, tmp_path):
    term = f"model.objective.terms.far={{_target_: mmrl.objectives.distillation.GKDLoss, teacher: {name}}}"
    statistics = "policy.statistics={choice_logprobs: {_target_: mmrl.policies.text.statistics.ChoiceLogprobs}}"
    context = "data.transforms.hinted={_target_: mmrl.methods.guidance.ssb.HintedContext}"
    words = [*TEXT, *QUIET, term, statistics, context, "model.reference=true", f"run_dir={tmp_path}"]
    with pytest.raises(ConfigError, match=f"term 'far' asks for .*{name}"):
        CLI(to_lightning(compose(words)), build=False)
