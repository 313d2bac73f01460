"""States that were saved under the names of earlier versions load to the same numbers, on every path."""

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint
from safetensors.torch import load_file, save_file
from torch import nn

import mmrl
from mmrl.callbacks.snapshots import Extrapolation
from mmrl.callbacks.warm_start import load_policy
from mmrl.distributed.fsdp2 import refuse_old_names
from mmrl.files.weight_names import current_name, current_names
from mmrl.learners.learner import Learner
from mmrl.learners.phases.base import part
from mmrl.policies.control.actor import SquashedPolicy
from mmrl.policies.control.policy import ControlPolicy
from mmrl.runs.checkpoint_file import read_checkpoint, write_checkpoint
from tests.api.test_training import QUIET
from tests.laws.heads import build_policy, raws
from tests.tiny_recipes import fit

OLD = {  # names of before, one for each renamed layer
    "tokens": (
        *("vision.features.stem_0.weight", "vision.project.weight", "vision.condition.0.weight", "vision.maps.bias"),
        *("vision.token.2.weight", "vision.identity", "body.transformer.embed_tokens.weight"),
        *("body.transformer.layers.0.self_attn.q_proj.weight", "body.proprio.bias", "body.queries", "body.head.weight"),
    ),
    "mean_flow": (
        *("expert.enter.weight", "expert.mix.2.bias", "expert.span.weight", "expert.place", "expert.context.weight"),
        *("expert.key.weight", "expert.value.weight", "expert.leave.bias", "expert.output.weight"),
        *(f"expert.blocks.0.norms.{number}.weight" for number in range(3)),
        *(f"expert.blocks.0.{name}.weight" for name in ("among", "joined", "query", "looked", "mlp.0")),
        *("body.transformer.norm.weight", "vision.maps.weight"),
    ),
    "flow_noise": ("expert.log_std.weight", "expert.output.bias"),
    "control": (
        *("value.weight", "encoder.image.convolutions.0.weight", "encoder.image.out.1.bias", "actor.0.weight"),
        *("critic.2.bias", "head.linear.weight", "head.log_std"),
    ),
    "actor": ("encoder.image.convolutions.6.bias", "encoder.image.out.0.weight", "head.linear.bias"),
}


def build(name: str):
    torch.manual_seed(0)
    sizes = {"observation_dims": 3, "actions": 2, "image_size": 24, "image_features": 4, "hidden": (8, 8)}
    if name in ("control", "actor"):
        return ControlPolicy(**sizes, kind="gaussian") if name == "control" else SquashedPolicy(**sizes)
    return build_policy(name, value_head=True)


def old_name(module: nn.Module, name: str) -> str:
    """The inverse of `current_name`."""
    first, dot, rest = name.partition(".")
    child = module._modules.get(first)
    name = f"{first}.{old_name(child, rest)}" if dot and child is not None else name
    for old, new in getattr(module, "renamed_weights", {}).items():
        if name == new or name.startswith(f"{new}."):
            return old + name.removeprefix(new)
    return name


def rename_back(module: nn.Module, state: dict) -> dict:
    return {old_name(module, name): tensor for name, tensor in state.items()}


def rename_file(policy: nn.Module, file: Path) -> None:
    """Write the weights of an exported policy under their old names."""
    saved = load_file(file)
    old = rename_back(policy, saved)
    assert set(old) != set(saved)
    save_file(old, file)


def assert_same(left: dict, right: dict) -> None:
    assert list(left) == list(right) and all(torch.equal(value, right[name]) for name, value in left.items())


@pytest.mark.parametrize("name", OLD)
def test_every_old_name_has_a_present_one(name):
    policy = build(name)
    state = policy.state_dict()
    old = rename_back(policy, state)
    assert set(OLD[name]) <= set(old)
    assert_same(current_names(policy, old), state)
    assert_same(current_names(policy, state), state)  # present names stay


@pytest.mark.parametrize("name", OLD)
def test_a_policy_folder_of_before_loads(name, tmp_path):
    policy = build(name)
    policy.save_pretrained(tmp_path)
    rename_file(policy, tmp_path / "model.safetensors")
    options = {"chain": policy.chain} if hasattr(policy, "chain") else {}
    options |= {"value_head": True} if hasattr(policy, "value_head") else {}
    torch.manual_seed(1)
    assert_same(type(policy)(path=str(tmp_path), **options).state_dict(), policy.state_dict())


@pytest.mark.parametrize("name", OLD)
def test_a_run_starts_from_a_checkpoint_of_before(name, tmp_path):
    policy = build(name)
    state = {f"policy.{key}": tensor for key, tensor in rename_back(policy, policy.state_dict()).items()}
    torch.save({"state_dict": state, "policy_contract": policy.contract()}, tmp_path / "last.ckpt")
    other = build(name)
    nn.init.zeros_(next(other.parameters()))
    load_policy(other, str(tmp_path / "last.ckpt"))
    assert_same(other.state_dict(), policy.state_dict())


def test_an_extrapolation_of_before_goes_on():
    policy, callback = build("control"), Extrapolation(every=1, alpha=0.5)
    callback.step(policy)
    weight = policy.value_net.weight.detach().clone()
    again = Extrapolation(every=1, alpha=0.5)
    again.load_state_dict({"before": rename_back(policy, callback.state_dict()["before"])})
    with torch.no_grad():
        policy.value_net.weight.add_(2)
    again.step(policy)
    torch.testing.assert_close(policy.value_net.weight.detach(), weight + 3)


REFERENCE = (
    *("recipe=demo_vla", "model.reference=true", "model.auxiliary_models={other: 1e-3}"),
    "objective.terms.entropy={_target_: mmrl.objectives.regularizer.Entropy}",
    *("policy.hidden_size=32", "policy.layers=1", "policy.heads=2", "data.task.sim.image_size=32"),
    *("data.num_prompts=3", "data.group_size=2", "data.update_epochs=1", "data.num_minibatches=2"),
    *("data.evaluation.count=1", "trainer.callbacks.last.every_n_epochs=1", "model.scheduler.total_iters=20"),
)


def test_a_resumed_run_of_before_is_the_resumed_run(tmp_path):
    """Weights of policy, reference and auxiliary model under old names, and the optimiser's state by position."""
    fit(tmp_path / "first", *REFERENCE, "trainer.max_epochs=1")
    present = tmp_path / "first/checkpoints/last.ckpt"
    saved = read_checkpoint(present)
    model = nn.Module()
    model.policy = build("tokens")
    model.models = nn.ModuleDict({"reference": model.policy, "other": model.policy})
    old = rename_back(model, saved["state_dict"])
    for prefix in ("policy", "models.reference", "models.other"):
        assert f"{prefix}.body.queries" in old
    write_checkpoint({**saved, "state_dict": old}, tmp_path / "old.ckpt")
    runs = [
        fit(tmp_path / name, *REFERENCE, "trainer.max_epochs=2", f"ckpt_path='{checkpoint}'")
        for name, checkpoint in (("present", present), ("old", tmp_path / "old.ckpt"))
    ]
    assert runs[0]["metrics"]
    for key in ("weights", "optimizer", "metrics"):
        torch.testing.assert_close(runs[0][key], runs[1][key], atol=0, rtol=0, equal_nan=True)


def test_a_run_of_before_evaluates_and_acts(tmp_path):
    keys = {"data": {"num_prompts": 1, "group_size": 2, "evaluation": {"count": 1}}, "trainer": {"max_epochs": 1}}
    small = ("policy.hidden_size=32", "policy.layers=1", "policy.heads=2", "data.task.sim.image_size=32")
    run = mmrl.fit("recipe=demo_vla", *QUIET, *small, run_dir=tmp_path / "run", **keys)
    policy, numbers = run.load_policy(), mmrl.evaluate(run)
    saved = read_checkpoint(run.checkpoint)
    model = nn.Module()
    model.policy = policy.policy
    write_checkpoint({**saved, "state_dict": rename_back(model, saved["state_dict"])}, run.checkpoint)
    assert any(name.startswith("policy.body.") for name in read_checkpoint(run.checkpoint)["state_dict"])
    again = run.load_policy()
    assert_same(again.policy.state_dict(), policy.policy.state_dict())
    observation = raws(1)[0]
    assert (again.act(observation) == policy.act(observation)).all()
    assert mmrl.evaluate(run) == numbers


def test_shards_of_before_are_refused(tmp_path):
    model = nn.Module()
    model.policy = build("control")
    for name, state in (("present", model.state_dict()), ("old", rename_back(model, model.state_dict()))):
        torch.distributed.checkpoint.save({"state_dict": state}, checkpoint_id=tmp_path / name, no_dist=True)
    refuse_old_names(model, tmp_path / "present")
    with pytest.raises(ValueError, match=r"14 of its weights .*; policy\.\S+ is now policy\."):
        refuse_old_names(model, tmp_path / "old")


def test_a_configuration_with_an_old_name_is_told_the_present_one():
    policy = build("flow_noise")
    assert current_name(policy, "expert.blocks.0.among.weight") == "expert.blocks.0.qkv_proj.weight"
    learner = partial(Learner, policy, nn.Identity(), partial(torch.optim.SGD, lr=0.1))
    with pytest.raises(ValueError, match=r"begins with \['body\.'\]; body\. is now transformer\.$"):
        learner(learning_rates={"body.": 0.1}).configure_optimizers()
    with pytest.raises(ValueError, match=r"begins with \['nothing'\]$"):
        learner(learning_rates={"nothing": 0.1}).configure_optimizers()
    actor = build("actor")
    with pytest.raises(ValueError, match=r"no model 'policy\.encoder\.image'.*; encoder\.image is now .*image_encoder"):
        part({"policy": actor}, "policy.encoder.image")
    assert part({"policy": actor}, "policy.encoder.image_encoder") is actor.encoder.image_encoder
