"""Arithmetic of weights by hand, and a reference that follows the policy in a run."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close

from mmrl.callbacks.snapshots import Extrapolation, ReferenceEMA, ReferenceReset, average_weights, interpolate
from mmrl.methods.rewards.rlp import InformationGain
from mmrl.runs.checkpoint_file import read_weights
from mmrl.transforms.filter import DropZeroVariance
from tests.tiny_recipes import fit


def learner(policy, reference):
    """A network of one weight as the policy, and its frozen copy."""
    networks = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    for network, weight in zip(networks, (policy, reference)):
        nn.init.constant_(network.weight, weight)
    return SimpleNamespace(policy=networks[0], models={"reference": networks[1]})


def reference_of(module):
    return module.models["reference"].weight.item()


def test_interpolation_by_hand():
    target = torch.tensor([1.0, 2.0])
    interpolate([target], [torch.tensor([3.0, 0.0])], 0.25)
    assert_close(target, torch.tensor([1.5, 1.5]))
    interpolate([target], [torch.tensor([3.0, 0.0])], 1.0)
    assert_close(target, torch.tensor([3.0, 0.0]))
    with pytest.raises(ValueError):
        interpolate([target], [], 1.0)


def test_averages_by_hand():
    one, two = ({"w": torch.tensor([value]), "steps": torch.tensor(count)} for value, count in ((1.0, 3), (4.0, 5)))
    mean = average_weights([one, two], [2, 1])
    assert_close(mean["w"], torch.tensor([2.0]))
    assert int(mean["steps"]) == 3
    for wrong in ([1.0], [0.0, 0.0]):
        with pytest.raises(ValueError, match="positive sum"):
            average_weights([one, two], wrong)
    with pytest.raises(ValueError, match=r"differ in \['w'\]"):
        average_weights([one, {"steps": torch.tensor(1)}], [1, 1])


def test_a_reset_every_so_many_iterations():
    module, callback = learner(5.0, 1.0), ReferenceReset(every=3)
    callback.on_fit_start(None, module)
    result = []
    for epoch in range(4):
        callback.on_train_epoch_end(SimpleNamespace(current_epoch=epoch), module)
        result.append(reference_of(module))
    assert result == [1.0, 1.0, 5.0, 5.0]


def test_an_average_moves_once_a_step():
    # .9 * 1 + .1 * 5 = 1.4; a micro-batch without a step changes nothing; .9 * 1.4 + .1 * 5 = 1.76
    module, callback = learner(5.0, 1.0), ReferenceEMA(decay=0.9)
    result = []
    for stepped in (True, False, True):
        if stepped:
            callback.on_before_optimizer_step(None, module, None)
        callback.on_train_batch_end(None, module, None, None, 0)
        result.append(reference_of(module))
    assert result == pytest.approx([1.4, 1.4, 1.76])


def test_extrapolation_by_hand():
    """Logits: [.5, .3, .2], then [.6, .25, .15], alpha .3: in proportion to p (p / p_before)^.3."""
    policy, callback = nn.Linear(1, 3, bias=False), Extrapolation(every=1, alpha=0.3)

    def finish_round(*probabilities):
        with torch.no_grad():
            policy.weight.copy_(torch.tensor(probabilities).log()[:, None])
        callback.step(policy)
        return policy.weight[:, 0].softmax(0).tolist()

    assert finish_round(0.5, 0.3, 0.2) == pytest.approx([0.5, 0.3, 0.2])  # the first round
    again = Extrapolation(every=1, alpha=0.3)
    again.load_state_dict(callback.state_dict())
    assert finish_round(0.6, 0.25, 0.15) == pytest.approx([0.628688, 0.234809, 0.136502], abs=1e-6)
    # compared with the result before extrapolation: nothing changes where a round changes nothing
    assert finish_round(0.6, 0.25, 0.15) == pytest.approx([0.6, 0.25, 0.15])
    callback = again
    assert finish_round(0.6, 0.25, 0.15) == pytest.approx([0.628688, 0.234809, 0.136502], abs=1e-6)


def test_an_extrapolation_of_shards_is_saved_whole(tmp_path):
    """A checkpoint has the state of one process, which every process of the resumed run reads."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        policies = [nn.Linear(2, 2, bias=False) for _ in range(2)]
        for policy in policies:
            nn.init.constant_(policy.weight, 1.0)
        fully_shard(policies[0], mesh=init_device_mesh("cpu", (1,)))
        first, again = Extrapolation(every=1, alpha=0.5), Extrapolation(every=1, alpha=0.5)
        first.step(policies[0])
        saved = first.state_dict()
        assert type(saved["before"]["weight"]) is torch.Tensor
        for policy in policies:  # with shards, and without
            with torch.no_grad():
                policy.weight.mul_(3)
            again.load_state_dict(saved)
            again.step(policy)
        assert_close(policies[0].weight.full_tensor(), torch.full((2, 2), 4.0))
        assert_close(policies[1].weight.detach(), torch.full((2, 2), 4.0))
    finally:
        torch.distributed.destroy_process_group()


RESET = "trainer.callbacks.reset={_target_: mmrl.callbacks.snapshots.ReferenceReset, every: 2}"


def test_a_run_resets_its_reference(tmp_path):
    """After two iterations it is the policy, and after the third it is not."""
    words = ("model.reference=true", "data.pipeline=[reference, group_advantage]")
    for epochs, equal in ((2, True), (3, False)):
        weights = fit(tmp_path / str(epochs), *words, RESET, f"trainer.max_epochs={epochs}")["weights"]
        policy = {name.removeprefix("policy."): w for name, w in weights.items() if name.startswith("policy.")}
        assert policy
        same = [torch.equal(w, weights[f"models.reference.{name}"]) for name, w in policy.items()]
        assert all(same) is equal
    with pytest.raises(ValueError, match=r"ReferenceReset changes the model 'reference'.*model\.reference=true"):
        fit(tmp_path / "none", RESET, "trainer.max_epochs=1")


def test_a_reference_that_the_collecting_thread_reads_is_not_changed():
    module = learner(5.0, 1.0)
    gain, drop = {"gain": InformationGain()}, {"drop": DropZeroVariance()}
    for callback in (ReferenceEMA(), ReferenceReset(2)):
        for staleness, transforms in ((0, {**drop, **gain}), (1, drop)):
            data = SimpleNamespace(staleness=staleness, transforms=transforms)
            callback.on_fit_start(SimpleNamespace(datamodule=data), module)
        trainer = SimpleNamespace(datamodule=SimpleNamespace(staleness=1, transforms={**drop, **gain}))
        with pytest.raises(ValueError, match=r"'reference' while data\.transforms\.gain reads it.*staleness=0"):
            callback.on_fit_start(trainer, module)


EMA = "trainer.callbacks.ema={_target_: mmrl.callbacks.snapshots.ReferenceEMA, decay: 0.9}"


@pytest.mark.parametrize("capture", [False, True])
def test_an_average_is_refused_where_steps_are_captured(capture, tmp_path):
    sizes = ("policy.hidden=[8]", "data.rollout.num_envs=2", "data.rollout.horizon=8", "data.num_prompts=2")
    words = ("recipe=ppo_control", *sizes, "data.evaluation=null", "model.reference=true", EMA, f"capture={capture}")
    if capture:
        with pytest.raises(ValueError, match=r"ReferenceEMA.*capture=true.*set capture=false"):
            fit(tmp_path, *words, "trainer.max_epochs=1")
        return
    weights = fit(tmp_path, *words, "trainer.max_epochs=1")["weights"]
    start = read_weights(tmp_path / "checkpoints" / "start.ckpt")["state_dict"]
    moved = [name for name in start if name.startswith("models.") and not torch.equal(start[name], weights[name])]
    assert moved


def test_an_average_of_low_precision_is_refused():
    """1 + 0.001 (5 - 1) in bfloat16 is 1."""
    module = learner(5.0, 1.0)
    for network in (module.policy, module.models["reference"]):
        network.bfloat16()
    with pytest.raises(ValueError, match=r"torch\.bfloat16.*lost by rounding.*policy\.dtype=float32"):
        ReferenceEMA(decay=0.999).on_fit_start(None, module)
    ReferenceEMA(decay=0.0).on_fit_start(None, module)  # a copy
    module.policy.requires_grad_(False)  # below adapters
    ReferenceEMA(decay=0.999).on_fit_start(None, module)


def test_refusals():
    for make in (
        lambda: ReferenceReset(0),
        lambda: ReferenceEMA(1.0),
        lambda: Extrapolation(0),
        lambda: Extrapolation(1, 1.0),
    ):
        with pytest.raises(ValueError):
            make()
