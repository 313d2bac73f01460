"""The action-token policy: same numbers when scored again, same weights when loaded again, clear refusals."""

import json

import numpy as np
import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.objectives.grounding import MapCrossEntropy
from mmrl.objectives.imitation_bins import SmoothedNegativeLogLikelihood
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.policies.vla.bins import bin_centres, choice_logprobs, entropy_nats, without_twins
from mmrl.policies.vla.small.instruction_tokenizer import instruction_tokenizer
from mmrl.policies.vla.small.token import ActionTokenPolicy

TEXTS = ("reach the red cube", "go to the crimson thing", "touch blue")


def policy(**given) -> ActionTokenPolicy:
    torch.manual_seed(0)
    small = dict(hidden_size=32, layers=2, heads=2, intermediate_size=48, bins=32, visual_tokens=4)
    return ActionTokenPolicy(**{**small, **given}).eval()


def raws(count: int = 6) -> list[dict]:
    rng = np.random.default_rng(0)
    return [
        {
            "image": rng.integers(0, 256, (64, 64, 3), dtype=np.uint8),
            "proprio": rng.normal(size=13).astype(np.float32),
            "instruction": TEXTS[i % len(TEXTS)],
        }
        for i in range(count)
    ]


def sampled(model: ActionTokenPolicy, sampling: Sampling, cached_features: bool = True) -> Batch:
    observation = model.collate([model.encode(raw) for raw in raws()])
    action = model.act(observation, sampling, Noise(range(6)))
    if cached_features and action.cached_features:
        observation = {k: v for k, v in observation.items() if k not in model.cached_inputs} | action.cached_features
    columns = {f"obs.{name}": column for name, column in observation.items()}
    temperature = torch.full((6,), sampling.temperature)
    return Batch(
        action=action.action,
        behavior_logprobs=action.behavior_logprobs,
        temperature=temperature,
        action_mask=action.action_mask,
        **columns,
        **action.extra,
    )


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=1.6), Sampling(top_p=0.7), Sampling(top_k=5), Sampling(decode="argmax")],
)
def test_scoring_again_gives_ratio_one(frozen: bool, sampling: Sampling) -> None:
    model = policy(freeze_vision=frozen)
    batch = sampled(model, sampling)
    assert ("obs.image" in batch) is not frozen
    assert (model(batch).logprobs - batch["behavior_logprobs"]).abs().max() < 1e-5


def test_ratio_is_one_alone_and_without_padding() -> None:
    # the shorter instructions are scored without the padding that they were sampled with
    model = policy()
    engine = LocalEngine()
    engine.sync(model, 0)
    completions = engine.sample([Request(raw, i) for i, raw in enumerate(raws())], Sampling(top_p=0.9))
    for done in completions:
        columns = {f"obs.{name}": column[None] for name, column in done.observation.items()}
        extra = {name: column[None] for name, column in done.extra.items()}
        out = model(Batch(action=done.action[None], **columns, **extra))
        assert (out.logprobs[0] - done.behavior_logprobs).abs().max() < 1e-5
        assert done.output.shape == (5, 3)


def test_stored_visual_tokens_replace_the_image() -> None:
    model = policy(freeze_vision=True)
    with_cache, with_image = sampled(model, Sampling()), sampled(model, Sampling(), cached_features=False)
    assert "obs.image" not in with_cache and "obs.visual" not in with_image
    torch.testing.assert_close(model(with_cache).logprobs, model(with_image).logprobs, atol=1e-6, rtol=0)


def test_freezing_leaves_vision_and_words_alone() -> None:
    model = policy(freeze_vision=True)
    model(sampled(model, Sampling())).logprobs.sum().backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert touched and not [n for n in touched if n.startswith("vision_encoder.") or "embed_tokens" in n]
    assert {"transformer.query_embed", "transformer.head.weight", "transformer.state_proj.weight"} <= touched


def test_every_parameter_learns_when_nothing_is_frozen() -> None:
    model = policy(value_head=True)
    out = model(sampled(model, Sampling()))
    (out.logprobs.sum() + out.values.sum()).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert idle == []


def test_masked_choices_give_no_gradient() -> None:
    model = policy(freeze_vision=True)
    batch = sampled(model, Sampling())
    weights = torch.zeros(6, 15)
    weights[:, :6] = 1 / 36  # the first two of five control steps were executed
    (model(batch).logprobs * weights).sum().backward()
    assert (model.transformer.query_embed.grad[2:] == 0).all()  # a query is seen by itself and by later ones only
    assert (model.transformer.query_embed.grad[:2] != 0).any()


def test_gradient_is_that_of_finite_differences() -> None:
    model = policy(freeze_vision=True, layers=1).double()
    batch = sampled(model.float(), Sampling())
    model.double()
    batch = batch.with_columns(**{k: v.double() for k, v in batch.items() if v.is_floating_point()})
    weight = model.transformer.state_proj.weight

    def loss() -> torch.Tensor:
        # the model computes log-probabilities in float32: compare slopes at 1e-3
        return model(batch).logprobs.mean()

    loss().backward()
    direction = weight.grad / weight.grad.norm()
    with torch.no_grad():
        weight += 1e-2 * direction
        high = loss()
        weight -= 2e-2 * direction
        low = loss()
    assert ((high - low) / 2e-2).item() == pytest.approx(weight.grad.norm().item(), rel=1e-2)


def test_decoding_modes() -> None:
    # one choice of 4 bins, centres -.75 -.25 .25 .75, probabilities .1 .2 .3 .4: mean .25, which lies on bin 2
    logprobs = torch.tensor([[[0.1, 0.2, 0.3, 0.4]]]).log()
    assert bin_centres(4).tolist() == [-0.75, -0.25, 0.25, 0.75]
    assert (logprobs.exp() @ bin_centres(4)).item() == pytest.approx(0.25)
    model = policy()
    observation = model.collate([model.encode(raw) for raw in raws()])
    mean = model.act(observation, Sampling(decode="mean"), Noise(range(6)))
    best = model.act(observation, Sampling(decode="argmax"), Noise(range(6)))
    other = model.act(observation, Sampling(decode="mean"), Noise(range(10, 16)))
    assert np.array_equal(np.stack(mean.output), np.stack(other.output))  # deterministic
    np.testing.assert_allclose(np.stack(best.output).reshape(6, 15), bin_centres(32)[best.action].numpy(), atol=0)
    assert (
        torch.from_numpy(np.stack(mean.output)).flatten(1) - bin_centres(32)[mean.action]
    ).abs().max() <= 1 / 32 + 1e-6


def test_only_kept_choices_have_mass() -> None:
    # .5 and .25 of four are kept: 2/3 and 1/3
    logits = torch.tensor([[[0.1, 0.5, 0.15, 0.25]]]).log()
    kept = torch.tensor([[[1, 3, -1]]])
    logprobs = choice_logprobs(logits, torch.ones(1), kept)
    assert logprobs.exp()[0, 0].tolist() == pytest.approx([0, 2 / 3, 0, 1 / 3])
    assert entropy_nats(logprobs).item() == pytest.approx(np.log(3) - 2 / 3 * np.log(2))
    # a filler is not the choice 0
    assert choice_logprobs(logits, torch.ones(1), torch.tensor([[[0, -1, -1]]])).exp()[0, 0, 0] == 1


def test_imitation_inverts_decoding() -> None:
    model, raw = policy(), raws()[0]
    done = model.act(model.collate([model.encode(raw)]), Sampling(), Noise([3]))
    assert torch.equal(model.encode_demonstration(raw, done.output[0]), done.action[0])
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(5, 3\)"):
        model.encode_demonstration(raw, np.zeros((4, 3)))


def test_saved_and_loaded_is_the_same_bits(tmp_path) -> None:
    model = policy(value_head=True)
    model.save_pretrained(tmp_path)
    torch.manual_seed(1)
    again = ActionTokenPolicy(path=str(tmp_path), value_head=True).eval()
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
    batch = sampled(model, Sampling())
    assert torch.equal(model(batch).logprobs, again(batch).logprobs)
    assert again.encode(raws()[1])["instruction"].tolist() == model.encode(raws()[1])["instruction"].tolist()
    ActionTokenPolicy(path=str(tmp_path), value_head=False)  # the value head may come and go


def test_a_folder_that_does_not_fit_is_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        ActionTokenPolicy(path=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    with pytest.raises(ValueError, match="not of an ActionTokenPolicy"):
        ActionTokenPolicy(path=str(tmp_path))
    policy().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architecture"]["layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="do not fit the policy"):
        ActionTokenPolicy(path=str(tmp_path))


def test_unknown_words_are_spelt() -> None:
    tokenizer = instruction_tokenizer(("reach", "the", "cube"))
    assert tokenizer.tokenize("Reach THE cyan cube!") == ["reach", "the", "c", "##y", "##a", "##n", "cube", "!"]
    assert tokenizer.unk_token in tokenizer.tokenize("reach ключ")
    model = policy()
    for text in ("ключ", "", "x" * 500):
        ids = model.encode({**raws()[0], "instruction": text})["instruction"]
        assert len(ids) >= 1 and ids.max() < len(model.tokenizer)


@pytest.mark.parametrize("name", ["image", "proprio", "instruction"])
def test_a_missing_observation_is_named(name: str) -> None:
    raw = raws()[0]
    del raw[name]
    with pytest.raises(ValueError, match=rf"needs observation \['{name}'\]"):
        policy().encode(raw)


def test_observations_of_a_wrong_form_are_refused() -> None:
    with pytest.raises(ValueError, match="'image' must be uint8"):
        policy().encode({**raws()[0], "image": np.zeros((3, 64, 64), np.float32)})
    with pytest.raises(ValueError, match="proprio_dims is 13"):
        policy().encode({**raws()[0], "proprio": np.zeros(7)})


def test_value_head_is_declared() -> None:
    assert ActionTokenPolicy.provides({"value_head": True}) == {"values"}
    assert ActionTokenPolicy.provides({}) == frozenset()
    assert policy(value_head=True)(sampled(policy(value_head=True), Sampling())).values.shape == (6,)
    assert policy()(sampled(policy(), Sampling())).values is None


def test_smoothed_targets_by_hand() -> None:
    # 3 bins, width 1, action 0: q ~ exp(-[0, .5, 2]) = 1, .6065, .1353 -> .5741 .3482 .0777; p uniform: loss ln 3
    logprobs = torch.full((1, 1, 3), 1 / 3).log()
    out = PolicyOutput(logprobs[..., 0], logprobs[..., 0], extra={"choice_logprobs": logprobs})
    batch = Batch(action=torch.tensor([[0]]), action_mask=torch.tensor([[True]]))
    assert SmoothedNegativeLogLikelihood(width=1.0)(out, batch).item() == pytest.approx(np.log(3))
    # p = .5 .25 .25: .5741 ln 2 + (.3482 + .0777) ln 4 = 0.9883
    out.extra["choice_logprobs"] = torch.tensor([[[0.5, 0.25, 0.25]]]).log()
    assert SmoothedNegativeLogLikelihood(width=1.0)(out, batch).item() == pytest.approx(0.9883, abs=1e-4)
    # a narrow target is the plain negative log-likelihood
    assert SmoothedNegativeLogLikelihood(width=0.01)(out, batch).item() == pytest.approx(np.log(2))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_smoothed_targets_are_renormalised_over_what_can_be_chosen(temperature) -> None:
    # 4 bins, the last one never chosen; width 1, action 2: q ~ exp(-[2, .5, 0]) = .1353 .6065 1 -> .0777 .3482 .5741
    logits = without_twins(torch.tensor([[[0.3, -1.0, 2.0, 9.0]]]), "openvla").requires_grad_()
    logprobs = choice_logprobs(logits, torch.tensor([temperature]))
    out = PolicyOutput(logprobs[..., 0], logprobs[..., 0], extra={"choice_logprobs": logprobs})
    batch = Batch(action=torch.tensor([[2]]), action_mask=torch.tensor([[True]]))
    loss = SmoothedNegativeLogLikelihood(width=1.0)(out, batch).sum()
    target = torch.tensor([0.0777, 0.3482, 0.5741])
    expected = -(target * (torch.tensor([0.3, -1.0, 2.0]) / temperature).log_softmax(-1)).sum()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-3)
    loss.backward()
    assert logits.grad.isfinite().all() and logits.grad[0, 0, 3] == 0 and logits.grad.any()
    # a target that is narrow and a bin that is never chosen: all goes to the nearest one that is
    narrow = SmoothedNegativeLogLikelihood(width=0.01)(out, batch.with_columns(action=torch.tensor([[3]])))
    assert narrow.item() == pytest.approx(-logprobs[0, 0, 2].item(), abs=1e-6)
    # an empty support restricts nothing
    whole = choice_logprobs(logits, torch.tensor([temperature]), torch.full((1, 1, 2), -1))
    assert torch.equal(whole, logprobs)
    # where nothing can be chosen: refused inside the mask, without a part in it outside
    nothing = choice_logprobs(torch.full_like(logits, MASKED_LOGIT), torch.ones(1))
    out.extra["choice_logprobs"] = nothing
    with pytest.raises(ValueError, match=r"choice 0 of row 0 \(demonstrated bin 2\) has no bin that can be chosen"):
        SmoothedNegativeLogLikelihood(width=1.0)(out, batch)
    assert (
        SmoothedNegativeLogLikelihood(1.0)(out, batch.with_columns(action_mask=~batch["action_mask"])).isfinite().all()
    )


def test_demonstrated_numbers_that_are_not_finite_are_refused() -> None:
    policy = ActionTokenPolicy(hidden_size=32, layers=1, heads=2, intermediate_size=48, visual_tokens=2)
    chunk = np.zeros((5, 3), np.float32)
    chunk[2, 1] = np.nan
    with pytest.raises(ValueError, match="a demonstrated action is nan in control step 2, dimension 1"):
        policy.encode_demonstration({}, chunk)


def test_map_cross_entropy_by_hand() -> None:
    # 2x2 maps, a 4x4 mask with 1 pixel in the first cell and 3 in the second: q = 1/4, 3/4, 0, 0
    mask = torch.zeros(1, 4, 4, dtype=torch.bool)
    mask[0, 0, 0] = mask[0, 0, 2] = mask[0, 1, 2] = mask[0, 1, 3] = True
    logits = torch.tensor([[[[0.1, 0.2], [0.3, 0.4]], [[0.25, 0.25], [0.25, 0.25]], [[9.0, 0.0], [0.0, 0.0]]]])
    logits[:, :2] = logits[:, :2].log()
    out = PolicyOutput(logits[:, 0, 0], logits[:, 0, 0], extra={"map_logits": logits})
    batch = Batch(target_mask=mask[:, None])
    one = -(0.25 * np.log(0.1) + 0.75 * np.log(0.2))
    assert MapCrossEntropy(maps=1)(out, batch).item() == pytest.approx(one)
    assert MapCrossEntropy(maps=2)(out, batch).item() == pytest.approx((one + np.log(4)) / 2)
    with pytest.raises(ValueError, match=r"no pixel in rows \[0\]"):
        MapCrossEntropy()(out, Batch(target_mask=mask[:, None] & False))
    # two objects, a map each: the second object's pixels are those of the first turned upside down, q = 0, 0, 1/4, 3/4
    both = Batch(target_mask=torch.stack([mask, mask.flip(1)], dim=1))
    assert MapCrossEntropy(maps=1)(out, both).item() == pytest.approx((one + np.log(4)) / 2)
    logits[0, 1] = torch.tensor([[0.5, 0.1], [0.1, 0.3]]).log()
    two = -(0.25 * np.log(0.1) + 0.75 * np.log(0.3))
    assert MapCrossEntropy(maps=1)(out, both).item() == pytest.approx((one + two) / 2)
    with pytest.raises(ValueError, match="need 4 maps of attention, but the policy has 3"):
        MapCrossEntropy(maps=2)(out, both)


def test_without_visual_tokens_a_policy_reads_no_image(tmp_path):
    blind = policy(visual_tokens=0, value_head=True, critic="own")
    assert blind.vision_encoder is None and blind.observation_names() == ("proprio", "instruction")
    without = [{name: value for name, value in raw.items() if name != "image"} for raw in raws()]
    observation = blind.collate([blind.encode(raw) for raw in without])
    assert set(observation) == {"proprio", "instruction"}
    action = blind.act(observation, Sampling(), Noise(range(6)))
    batch = Batch(
        action=action.action,
        temperature=torch.ones(6),
        action_mask=action.action_mask,
        **{f"obs.{name}": column for name, column in observation.items()},
    )
    out = blind(batch)
    torch.testing.assert_close(out.logprobs, action.behavior_logprobs, atol=1e-4, rtol=0)
    torch.testing.assert_close(out.values, action.values)
    blind.save_pretrained(tmp_path)
    again = ActionTokenPolicy(path=str(tmp_path), value_head=True, critic="own").eval()
    torch.testing.assert_close(again(batch).logprobs, out.logprobs)
    with pytest.raises(ValueError, match=r"policy.visual_tokens=0 has none"):
        policy(visual_tokens=0, freeze_vision=True)
