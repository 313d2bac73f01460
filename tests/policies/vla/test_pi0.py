"""pi0 of transformers as a policy: it says what the model itself says, learns where it may, and is saved as it came."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import PI0Config, PI0ForConditionalGeneration, PI0Processor

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.processor import Processor
from mmrl.policies.vla.action_padding import ActionPadding
from mmrl.policies.vla.chains import DDIM, FlowNoise, FlowODE
from mmrl.policies.vla.pi0.policy import Pi0Policy
from mmrl.policies.vla.scale import Scale
from tests.checkpoints import pi0
from tests.laws.heads import demonstrated, pi0_folder, pi0_policy, raws, sampled
from tests.policies.vla.flow_vla_checks import (
    check_adapters,
    check_cloning,
    check_equal_gradients,
    check_half_precision,
    check_open_parameters,
    gradients,
    touched,
)
from tests.policies.vla.lerobot_environment import make, needs_lerobot, run
from tests.tiny_recipes import QUIET


def given(policy, count: int = 3) -> dict[str, torch.Tensor]:
    """The model's own arguments for the contexts of `raws`, as the checkpoint's own processor makes them one by one."""
    processor = PI0Processor.from_pretrained(policy.path)
    rows = [
        processor(images=[[raw["image"]]], text=[raw["instruction"]], padding=False, return_tensors="pt")
        for raw in raws(count)
    ]
    length = max(row["input_ids"].shape[1] for row in rows)
    state = torch.stack([torch.from_numpy(raw["proprio"]) for raw in raws(count)])

    def filled(name: str) -> torch.Tensor:
        return torch.cat([torch.nn.functional.pad(r[name], (0, length - r[name].shape[1])) for r in rows])

    return {
        "input_ids": filled("input_ids"),
        "attention_mask": filled("attention_mask"),
        "pixel_values": torch.cat([row["pixel_values"] for row in rows]),
        "pixel_attention_mask": torch.cat([row["pixel_attention_mask"] for row in rows]),
        "state": torch.nn.functional.pad(state, (0, 16 - state.shape[1])),
    }


def test_it_reads_what_the_checkpoints_processor_makes():
    policy, rows = pi0_policy(), given(pi0_policy())
    own = policy.collate([policy.encode(raw) for raw in raws(3)])
    assert torch.equal(own["input_ids"], rows["input_ids"])
    assert torch.equal(own["attention_mask"], rows["attention_mask"])
    assert len(set(own["attention_mask"].sum(1).tolist())) > 1  # filling is tested
    assert_close(policy.reading.pixels(own["images"]), rows["pixel_values"], atol=0, rtol=0)


def test_without_noise_it_is_the_models_own_sampler():
    policy = pi0_policy(FlowODE(steps=4)).eval()
    observation = policy.collate([policy.encode(raw) for raw in raws(3)])
    action = policy.act(observation, Sampling(), Noise(range(3)))
    noise = Noise(range(3)).normal(8, 8)
    expected = policy.model.sample_actions(**given(policy), noise=noise, num_steps=4)
    got = policy.action_padding.join(action.action[:, -5:], action.extra["padding_actions"][:, -5:])
    assert_close(got, expected, atol=1e-5, rtol=0)
    assert (expected - noise).abs().max() > 0.1
    assert_close(np.stack(action.output), expected[:, :5, :3].clamp(-1, 1).numpy(), atol=1e-5, rtol=0)


def test_cloning_is_the_models_own_loss():
    policy = pi0_policy(timesteps_per_sample=2).eval()
    policy.model.config.loss_reduction = "none"
    chunk = np.random.default_rng(0).uniform(-1, 1, (3, 5, 3)).astype(np.float32)
    batch = demonstrated(policy, chunk)
    error = policy(batch).extra["denoising_error"]
    noise = Noise(batch["row_seed"].numpy())
    whole = torch.zeros(3, 8, 8)
    whole[:, :5, :3] = torch.from_numpy(chunk)
    whole[:, 5:, :3] = whole[:, 4:5, :3]
    for k in range(2):
        drawn = policy.chain.sample_target(whole, noise)
        end = drawn.target + whole
        loss = policy.model(**given(policy), actions=whole, noise=end, timestep=drawn.time).loss
        assert_close(error[..., k].square(), loss[:, :5, :3], atol=1e-5, rtol=1e-5)


def test_timesteps_have_the_models_density():
    """Quantiles of 0.001 + 0.999 Beta(1.5, 1): at fraction p the time is 0.001 + 0.999 p^(2/3)."""
    policy = pi0_policy()
    config = policy.model.config
    assert (config.time_sampling_beta_alpha, config.time_sampling_beta_beta) == (1.5, 1.0)
    time = policy.chain.sample_target(torch.zeros(4000, 1, 1), Noise(range(4000))).time
    share = torch.tensor([0.1, 0.5, 0.9])
    assert_close(time.quantile(share), 0.001 + 0.999 * share ** (2 / 3), atol=0.02, rtol=0)


def test_two_cameras_and_a_shorter_horizon():
    policy = pi0_policy(cameras=("image", "wrist"), horizon=5).eval()
    both = [{**raw, "wrist": raw["image"][::-1].copy()} for raw in raws(2)]
    observation = policy.collate([policy.encode(raw) for raw in both])
    result = PI0Processor.from_pretrained(policy.path)(
        images=[[both[0]["image"], both[0]["wrist"]]], text=[both[0]["instruction"]], padding=False, return_tensors="pt"
    )
    length = result["input_ids"].shape[1]
    assert torch.equal(observation["input_ids"][0, :length], result["input_ids"][0])
    assert_close(policy.reading.pixels(observation["images"])[0], result["pixel_values"][0], atol=0, rtol=0)
    action = policy.act(observation, Sampling(), Noise(range(2)))
    assert policy.action_padding.steps == 5 and action.extra["padding_actions"].shape == (2, 20, 5)


def test_padding_actions_are_read_but_are_no_choices():
    policy = pi0_policy().eval()
    batch = sampled(policy)
    block = batch["action_mask"].unflatten(1, (4, 5)).any(2).long().argmax(1)  # the drawn transition led there
    rows = torch.arange(batch.rows)
    padding = batch["padding_actions"].unflatten(1, (4, 5))
    # the padding of the drawn state is where the step without noise leads
    x = policy._state(batch, rows, block - 1)
    observation = policy.encode_context(batch.observation())
    with torch.no_grad():
        velocity, _ = policy.predict(observation.prefix, x, policy.chain.time(block - 1))
        calm = policy.action_padding.split(x - velocity / 3)
    assert_close(padding[rows, block], calm[1], atol=1e-5, rtol=0)
    assert (batch["action"].unflatten(1, (4, 5))[rows, block] - calm[0]).abs().mean() > 0.05
    before = policy(batch).logprobs
    for shift, changes in ((0, False), (-1, True)):
        moved = padding.clone()
        moved[rows, block + shift] += 1.0
        after = policy(batch.with_columns(padding_actions=moved.flatten(1, 2))).logprobs
        assert bool((after - before).abs().max() > 1e-3) is changes
        assert torch.equal(after, before) is not changes
    with pytest.raises(KeyError, match="padding_actions"):
        policy(type(batch)({k: v for k, v in batch.items() if k != "padding_actions"}))


@pytest.mark.parametrize("sizes", [(5, 3, 8, 8), (1, 1, 4, 2), (3, 8, 5, 8), (5, 3, 5, 3)])
def test_action_padding_splits_and_joins(sizes):
    padding = ActionPadding(*sizes)
    state = torch.randn(2, sizes[2], sizes[3])
    chunk, rest = padding.split(state)
    assert chunk.shape == (2, *sizes[:2]) and rest.shape == (2, sizes[0], padding.entries_per_step)
    assert torch.equal(padding.join(chunk, rest), state)


def test_what_is_frozen():
    policy = pi0_policy(freeze_context=True, value_head=True)
    out = policy(sampled(policy))
    names = touched(policy, out.logprobs.sum() + out.values.sum())
    assert any(n.startswith("model.model.dit.") for n in names) and any(n.startswith("value_head.") for n in names)
    assert not any(".vlm." in name for name in names)
    assert {n for n, p in policy.named_parameters() if p.requires_grad and ".vlm." in n} == set()
    policy = pi0_policy(freeze_vision=True)
    names = touched(policy, policy(sampled(policy)).logprobs.sum())
    assert any("language_model" in name for name in names)
    assert not any("vision_tower" in name or "projector" in name for name in names)


def test_every_open_parameter_is_in_the_graph():
    """Processes that share gradients wait for all of them, those of unread outputs too."""
    policy = pi0_policy(FlowNoise(steps=2), value_head=True, critic="shared")
    open_names = check_open_parameters(policy)
    assert "model.model.dit.embed_tokens.weight" not in open_names
    plain = pi0_policy()
    slopes = gradients(plain, plain(sampled(plain)).logprobs.sum())
    assert set(slopes) == {name for name, p in plain.named_parameters() if p.requires_grad}


def test_what_a_value_trains():
    for critic, trained in (("shared", True), ("detached", False)):
        policy = pi0_policy(value_head=True, critic=critic)
        names = touched(policy, policy(sampled(policy)).values.sum())
        assert any(".vlm." in name for name in names) is trained


@pytest.mark.parametrize("freeze_context", [False, True])
def test_checkpointed_layers_have_the_same_gradient(freeze_context):
    options = {"freeze_context": freeze_context}
    plain = pi0_policy(**options).train()
    saving = pi0_policy(gradient_checkpointing=True, **options).train()
    batch = sampled(plain.eval())
    results, runs = [], []
    for policy in (plain, saving):
        policy.train()
        layers = [policy.model.model.dit.layers[0], policy.model.model.vlm.language_model.layers[0]]
        for number, layer in enumerate(layers):
            layer.mlp.register_forward_pre_hook(lambda *_, place=(policy is saving, number): runs.append(place))
        results.append(gradients(policy, policy(batch).logprobs.sum()))
    check_equal_gradients(*results)
    # with checkpoints a layer runs twice, unless there is no gradient to be had of it
    assert [runs.count((True, number)) for number in (0, 1)] == [2, 1 if freeze_context else 2]
    assert [runs.count((False, number)) for number in (0, 1)] == [1, 1]


def test_cloning_lowers_the_error():
    check_cloning(pi0_policy(freeze_context=True))


def test_adapters_learn_alone_and_are_merged(tmp_path):
    check_adapters(pi0_policy, ".vlm.", tmp_path)


def test_an_export_is_a_checkpoint_of_transformers(tmp_path):
    policy = pi0_policy(FlowNoise(), value_head=True, horizon=6).eval()
    torch.nn.init.normal_(policy.log_std.weight, std=0.2)
    policy.save_pretrained(tmp_path)
    model = PI0ForConditionalGeneration.from_pretrained(tmp_path).eval()
    processor = PI0Processor.from_pretrained(tmp_path)
    assert model.config.chunk_size == 6 and processor.image_token_id == model.config.vlm_config.image_token_id
    rows, noise = given(policy), torch.randn(3, 6, 8)
    want = policy.model.sample_actions(**rows, noise=noise, num_steps=3)
    assert torch.equal(model.sample_actions(**rows, noise=noise, num_steps=3), want)
    again = pi0_policy(FlowNoise(), path=str(tmp_path), value_head=True).eval()
    batch = sampled(policy)
    assert torch.equal(policy(batch).logprobs, again(batch).logprobs)
    assert torch.equal(policy(batch).values, again(batch).values)
    with (
        safe_open(tmp_path / "model.safetensors", "pt") as file,
        safe_open(f"{pi0_folder()}/model.safetensors", "pt") as old,
    ):
        assert set(file.keys()) == set(old.keys())


def test_statistics_of_a_checkpoint_are_its_units(tmp_path):
    folder = pi0(tmp_path / "made")
    own = PI0Processor.from_pretrained(folder)
    own.state_mean, own.state_std = [0.5] * 13, [2.0] * 13
    own.actions_mean, own.actions_std = [0.1, 0.2, 0.3], [3.0, 4.0, 5.0]
    own.save_pretrained(folder)
    policy = pi0_policy(path=str(folder)).eval()
    raw = raws(1)[0]
    assert_close(policy.encode(raw)["proprio"].numpy(), (raw["proprio"] - 0.5) / 2)
    result = own(
        images=[[raw["image"]]], text=["a"], state=raw["proprio"][None], actions=np.ones((8, 3)), padding=False
    )
    assert_close(result["state"][0, :13], policy.encode(raw)["proprio"])
    chunk = policy.encode_demonstration(raw, np.ones((5, 3)))
    assert_close(chunk, result["actions"][0, :5, :3], atol=1e-6, rtol=1e-6)
    # standard deviations are not cut at 1
    with torch.no_grad():
        policy.model.action_out_proj.bias.fill_(-2.0)
    assert np.abs(sampled(policy)["output"].numpy()).max() > 5.5
    policy.save_pretrained(tmp_path / "saved")
    again = PI0Processor.from_pretrained(tmp_path / "saved")
    assert again.actions_std == [3.0, 4.0, 5.0] and again.state_mean == [0.5] * 13
    assert pi0_policy(path=str(tmp_path / "saved")).processor == policy.processor
    other = Processor(action=Scale("mean_std", (0.0,) * 3, (1.0,) * 3))
    with pytest.raises(ValueError, match=r"another policy\.processor"):
        pi0_policy(path=str(tmp_path / "saved"), processor=other)


@needs_lerobot
def test_it_is_lerobots_pi0(tmp_path):
    """Of a checkpoint that LeRobot made, whose sizes are added to its config.json: transformers reads them there."""
    folder = make("pi0", tmp_path)
    heads = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 4}
    text = {"model_type": "gemma", "hidden_size": 32, "intermediate_size": 64, "vocab_size": 600, **heads}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 16, "image_size": 56, "patch_size": 14, "vision_use_head": False}
    sizes = PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": text,
            "vision_config": vision,
            "projection_dim": 32,
            "image_token_id": PI0Processor.from_pretrained(pi0_folder()).image_token_id,
        },
        dit_config={"model_type": "gemma", "hidden_size": 24, "intermediate_size": 64, **heads},
    ).to_dict()
    shutil.copytree(folder, tmp_path / "both")
    own = json.loads((folder / "config.json").read_text())
    (tmp_path / "both" / "config.json").write_text(json.dumps({**sizes, **own}))
    policy = pi0_policy(FlowODE(steps=10), path=str(tmp_path / "both"), reader=pi0_folder()).eval()
    assert policy.processor.action.offset[2] == pytest.approx(0.3)
    rows = [{**raw, "image": np.full((56, 56, 3), 40 * i, np.uint8)} for i, raw in enumerate(raws(3))]
    observation = policy.collate([policy.encode(raw) for raw in rows])
    action = policy.act(observation, Sampling(), Noise(range(3)))
    given = {"images": torch.from_numpy(np.stack([raw["image"] for raw in rows])), "chunk": torch.zeros(3, 8, 3)}
    given |= {"state": torch.from_numpy(np.stack([raw["proprio"] for raw in rows])), "time": torch.ones(3)}
    given |= {"noise": Noise(range(3)).normal(8, 8)}
    begin = policy.reading.processor.tokenizer.bos_token  # which Gemma's tokenizer adds, and this one does not
    want = run("pi0", folder, tmp_path / "own", [begin + raw["instruction"] for raw in rows], **given)
    words = observation["input_ids"][:, 16:]
    assert torch.equal(want["tokens"][:, : words.shape[1]] * observation["attention_mask"][:, 16:], words)
    found = policy.action_padding.join(action.action[:, -5:], action.extra["padding_actions"][:, -5:])
    assert_close(found[..., :3], want["actions"], atol=1e-4, rtol=0)
    assert_close(np.stack(action.output), want["output"][:, :5].numpy(), atol=1e-4, rtol=0)


def test_half_precision_scores_what_it_drew():
    check_half_precision(pi0_policy(dtype="bfloat16"))
    mixed = pi0_policy().eval()
    with torch.autocast("cpu", torch.bfloat16):
        batch = sampled(mixed)
        out = mixed(batch)
    assert out.logprobs.dtype == torch.float32 and (out.logprobs - batch["behavior_logprobs"]).abs().max() < 0.1


def test_refusals(tmp_path):
    for words, message in (
        ({"chain": DDIM()}, "velocity"),
        ({"action_dims": 9}, r"action_dims=9.*max_action_dim is 8"),
        ({"chunk": 9}, r"chunk=9.*chunk_size \(policy.horizon\) is 8"),
        ({"proprio_dims": 17}, r"proprio_dims=17.*max_state_dim is 16"),
        ({"path": str(tmp_path)}, "cannot be loaded"),
    ):
        with pytest.raises(ValueError, match=message):
            pi0_policy(**words)
    policy = pi0_policy(cameras=("image", "wrist"))
    with pytest.raises(ValueError, match="wrist"):
        policy.encode(raws(1)[0])
    small = {**raws(1)[0], "wrist": np.zeros((16, 16, 3), np.uint8)}
    with pytest.raises(ValueError, match="images"):
        policy.encode(small)


def test_published_names_are_understood(tmp_path):
    """The weights of the hub have the names of openpi's port to torch, and the word vectors as `lm_head`."""
    model = PI0ForConditionalGeneration.from_pretrained(pi0(tmp_path))

    def published(name: str) -> str:
        name = name.removeprefix("embed_action_time.")
        for ours, theirs in (
            ("model.vlm.language_model.embed_tokens", "paligemma_with_expert.paligemma.lm_head"),
            ("model.dit.embed_tokens", "paligemma_with_expert.gemma_expert.lm_head"),
            ("model.vlm.", "paligemma_with_expert.paligemma.model."),
            ("model.dit.", "paligemma_with_expert.gemma_expert.model."),
        ):
            name = name.replace(ours, theirs)
        return f"model.{name}"

    weights = {published(name): value.clone() for name, value in model.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    again = pi0_policy(path=str(tmp_path)).model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def test_it_is_built_without_weights_for_processes_that_receive_them():
    with torch.device("meta"):
        empty = pi0_policy(horizon=5)
    whole = pi0_policy(horizon=5)
    assert all(weight.is_meta for weight in empty.parameters()) and empty.horizon == 5
    shapes = [{name: p.shape for name, p in policy.named_parameters()} for policy in (empty, whole)]
    assert shapes[0] == shapes[1]


def test_weights_that_are_missing_are_not_drawn_at_random(tmp_path):
    folder = pi0(tmp_path)
    weights = load_file(folder / "model.safetensors")
    name = next(key for key in weights if "action_out_proj" in key)
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="action_out_proj"):
        pi0_policy(path=str(folder))


def test_cloned_and_trained_from_rewards_by_words(tmp_path):
    """The folder that transformers made is cloned, trained for an iteration, and loads with transformers alone."""
    small = [
        *QUIET,
        "policy=pi0",
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "data.num_prompts=4",
        "data.num_minibatches=1",
        "data.evaluation.count=2",
        "engine.max_rows=8",
    ]
    clone = ["recipe=flow_bc", *small, f"policy.path='{pi0_folder()}'", f"run_dir='{tmp_path}/clone'"]
    train = [
        "recipe=flow_sde_ppo",
        "policy.critic=shared",
        *small,
        "data.update_epochs=2",
        f"run_dir='{tmp_path}/train'",
    ]
    train.append(f"policy.path='{tmp_path}/clone/policy'")
    weights = []
    for words in (clone, train):
        CLI(to_lightning(compose(words))).fit()
        folder = tmp_path / ("clone" if words is clone else "train") / "policy"
        weights.append(PI0ForConditionalGeneration.from_pretrained(folder).state_dict())
        assert json.loads((folder / "mmrl_policy.json").read_text())["class"] == Pi0Policy.__name__
    start = PI0ForConditionalGeneration.from_pretrained(pi0_folder()).state_dict()
    for before, after in ((start, weights[0]), (weights[0], weights[1])):
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert any(".dit." in name for name in changed) and not any(".vlm." in name for name in changed)
