"""The way from a robot to a network and back: identities, refusals, and the value that travels with the weights."""

import json

import numpy as np
import pytest
import torch

from mmrl.callbacks.warm_start import load_policy
from mmrl.learners.learner import Learner
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.objective import Objective
from mmrl.policies.processor import Gripper, ImageTransform, Processor, digest, refuse_other
from mmrl.policies.vla.scale import Scale
from mmrl.policies.vla.small.token import ActionTokenPolicy

RNG = np.random.default_rng(0)
# the second dimension never moves
DATA = np.column_stack([RNG.normal(3, 2, 500), np.full(500, 0.7), RNG.uniform(-1, 5, 500)]).astype(np.float32)
STATS = {
    "mean": DATA.mean(0),
    "std": DATA.std(0, dtype=np.float64).round(7),
    "min": DATA.min(0),
    "max": DATA.max(0),
    "q01": np.quantile(DATA, 0.01, axis=0),
    "q99": np.quantile(DATA, 0.99, axis=0),
}
MASK = [True, False, True]
TINY = dict(hidden_size=16, layers=1, heads=2, intermediate_size=16, visual_tokens=2, proprio_dims=3, chunk=2)


@pytest.mark.parametrize(
    "scale",
    [
        Scale(),
        Scale.of("mean_std", STATS),
        Scale.of("mean_std", STATS, MASK),
        Scale.of("quantile", STATS, MASK),
        Scale.of("min_max", STATS, MASK),
    ],
    ids=lambda scale: f"{scale.kind}-{len(scale.mask) - sum(scale.mask)}",
)
def test_scaling_and_back_is_the_identity(scale):
    np.testing.assert_allclose(scale.invert(scale.apply(DATA)), DATA, rtol=3e-7, atol=3e-7)


def test_scales_are_what_they_are_called():
    standard = Scale.of("mean_std", STATS).apply(DATA)
    np.testing.assert_allclose(standard.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(0), [1, 0, 1], atol=1e-5)
    extreme = Scale.of("min_max", STATS, MASK).apply(DATA)
    np.testing.assert_allclose([extreme.min(0), extreme.max(0)], [[-1, 0.7, -1], [1, 0.7, 1]], atol=1e-6)
    # [q01, q99] = [2, 6]: centre 4, half the range 2
    np.testing.assert_allclose(
        Scale.of("quantile", {"q01": [2], "q99": [6]}).apply([[2], [4], [7]]), [[-1], [0], [1.5]]
    )


def test_what_cannot_be_scaled_is_refused():
    with pytest.raises(ValueError, match=r"action: dimensions \[1\] have zero range .q01 = q99.*mask them"):
        Scale.of("quantile", STATS, name="action")
    with pytest.raises(ValueError, match=r"no statistics \['q01', 'q99'\]"):
        Scale.of("quantile", {"mean": [0]}, name="action")
    with pytest.raises(ValueError, match="dimension 0 cannot be scaled"):
        Scale("mean_std", (float("nan"),), (1.0,))
    with pytest.raises(ValueError, match="3 dimensions, the vector has shape"):
        Scale.of("mean_std", STATS).apply(np.zeros(4))


def test_images_are_turned_as_named():
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    turned = ImageTransform(rotate=180).apply(image)
    np.testing.assert_array_equal(turned, image[::-1, ::-1])
    np.testing.assert_array_equal(ImageTransform(mirror=True).apply(image), image[:, ::-1])
    np.testing.assert_array_equal(ImageTransform(layout="CHW").apply(image.transpose(2, 0, 1)), image)
    assert ImageTransform(size=4).apply(image).shape == (4, 4, 3)
    with pytest.raises(ValueError, match="uint8"):
        ImageTransform().apply(image / 255)


def test_a_hand_is_turned_around_and_back():
    # the network says 0 closed, 1 open; the robot is told +1 to close, -1 to open
    hand = Gripper(dim=1, closed=1, open=-1, policy_closed=0, policy_open=1)
    processor = Processor(action=Scale("mean_std", (2.0, 0.0), (4.0, 1.0), (True, False)), gripper=hand)
    np.testing.assert_allclose(processor.decode([[0.5, 0.0], [0.0, 1.0], [0.0, 0.25]]), [[4, 1], [2, -1], [2, 0.5]])
    actions = RNG.uniform(-1, 1, (3, 5, 2)).astype(np.float32)
    np.testing.assert_allclose(processor.decode(processor.encode_action(actions)), actions, atol=1e-6)
    binary = Processor(gripper=Gripper(1, 1, -1, 0, 1, binary=True))
    np.testing.assert_allclose(binary.decode([[9, 0.49], [9, 0.51]]), [[9, 1], [9, -1]])
    with pytest.raises(ValueError, match="scaled as well"):
        Processor(action=Scale("mean_std", (2.0, 0.0), (4.0, 1.0)), gripper=hand)


def processor():
    return Processor(
        names={"front": "image", "state": "proprio"},
        images={"image": ImageTransform(rotate=180)},
        vectors={"proprio": Scale.of("mean_std", STATS)},
        action=Scale.of("quantile", STATS, MASK),
        gripper=Gripper(dim=1, closed=0.0, open=0.08, policy_closed=-1, policy_open=1),
    )


def raw():
    return {"front": np.zeros((32, 32, 3), np.uint8), "state": DATA[0], "instruction": "push"}


def test_it_is_saved_and_compared():
    own = processor()
    assert Processor.from_dict(json.loads(json.dumps(own.to_dict()))) == own
    assert (
        digest(own.contract())
        == digest(Processor.from_dict(own.to_dict()).contract())
        != digest(Processor().contract())
    )
    assert json.loads(json.dumps(own.contract())) == own.contract()
    other = Processor.from_dict({**own.to_dict(), "images": {}})
    with pytest.raises(ValueError) as refused:
        refuse_other(own.contract(), other.contract(), "last.ckpt")
    assert [line.split(":")[0].strip() for line in str(refused.value).splitlines()[1:-1]] == [
        "processor.images",
        *(f"processor.images.image.{name}" for name in ("layout", "mirror", "rotate", "size")),
    ]


def test_a_policy_acts_and_imitates_in_the_robots_units():
    policy = ActionTokenPolicy(**TINY, processor=processor())
    seen = policy.encode(raw())
    np.testing.assert_allclose(seen["proprio"], Scale.of("mean_std", STATS).apply(DATA[0]))
    reported = np.stack([DATA[3], DATA[4]])
    reported[:, 1] = [0.0, 0.08]
    bins = policy.encode_demonstration(raw(), reported)
    centres = (2 * bins.numpy() + 1) / policy.bins - 1
    width = np.array([*(STATS["q99"] - STATS["q01"])]) / 2
    width[1] = 0.04
    bound = (
        np.tile(1.01 / policy.bins * width, (2, 1))
        + np.maximum(0, np.abs(policy.processor.encode_action(reported)) - 1) * width
    )
    assert (np.abs(policy.processor.decode(centres.reshape(2, 3)) - reported) <= bound).all()
    with pytest.raises(ValueError, match=r"expects observation 'image'.*processor\.names"):
        policy.encode({"camera": raw()["front"], "state": DATA[0], "instruction": ""})


def test_a_checkpoints_statistics_are_kept_and_only_what_they_leave_open_is_given():
    scale, other = Scale("mean_std", (1.0,), (2.0,)), Scale("mean_std", (0.0,), (2.0,))
    statistics = Processor(vectors={"proprio": scale}, action=scale)
    assert Processor.with_statistics(None, statistics, "here") == statistics
    assert Processor.with_statistics(statistics, None, "here") == statistics
    given = Processor(names={"front": "image"}, images={"image": ImageTransform(rotate=180)}, vectors={"touch": other})
    found = Processor.with_statistics(given, statistics, "here")
    assert (found.names, found.images, found.action) == (given.names, given.images, scale)
    assert found.vectors == {"proprio": scale, "touch": other}
    assert Processor.with_statistics(statistics, statistics, "here") == statistics
    lines = r"^here has statistics.*\n  processor\.vectors\.proprio\.offset: \[1\.0\] in training, \[0\.0\] here\n"
    with pytest.raises(ValueError, match=lines):
        Processor.with_statistics(Processor(vectors={"proprio": other}), statistics, "here")
    unscaled = Processor(vectors={"proprio": scale})
    assert Processor.with_statistics(Processor(action=other), unscaled, "here").action == other


def test_it_travels_with_the_weights(tmp_path):
    policy = ActionTokenPolicy(**TINY, processor=processor())
    policy.save_pretrained(tmp_path / "policy")
    again = ActionTokenPolicy(path=str(tmp_path / "policy"))
    assert again.processor == policy.processor and again.contract() == policy.contract()
    with pytest.raises(ValueError, match=r"another policy\.processor"):
        ActionTokenPolicy(path=str(tmp_path / "policy"), processor=Processor())
    learner = Learner(policy, Objective({"imitation": NegativeLogLikelihood()}, {}), torch.optim.Adam)
    checkpoint = {"state_dict": learner.state_dict()}
    learner.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "last.ckpt")
    load_policy(again, str(tmp_path / "last.ckpt"))
    with pytest.raises(ValueError, match=r"processor\.action\.kind: \"quantile\" in training, \"identity\" here"):
        load_policy(ActionTokenPolicy(**TINY), str(tmp_path / "last.ckpt"))


def test_a_start_may_be_the_frozen_weights_alone(tmp_path):
    before = ActionTokenPolicy(**TINY, freeze_vision=True)
    state = {f"policy.{name}": part for name, part in before.state_dict().items()}
    torch.save({"state_dict": state, "policy_contract": before.contract()}, tmp_path / "last.ckpt")
    policy = ActionTokenPolicy(**TINY, freeze_vision=True, value_head=True)
    drawn = {name: part.clone() for name, part in policy.state_dict().items()}
    load_policy(policy, str(tmp_path / "last.ckpt"), frozen_only=True)
    for name, part in policy.named_parameters():
        assert torch.equal(part, drawn[name] if part.requires_grad else before.state_dict()[name]), name
    assert not torch.equal(drawn["transformer.head.weight"], before.state_dict()["transformer.head.weight"])
    with pytest.raises(ValueError, match="trains all its weights; freeze a part"):
        load_policy(ActionTokenPolicy(**TINY), str(tmp_path / "last.ckpt"), frozen_only=True)
