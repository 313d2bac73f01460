"""SmolVLA in lerobot's format: it computes what lerobot computes, learns where it may, and is saved as it came."""

import importlib
import itertools
import json
import types

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.processor import Processor
from mmrl.policies.vla.chains import FlowNoise, FlowODE
from mmrl.policies.vla.scale import Scale
from mmrl.policies.vla.smolvla.policy import SmolVLAPolicy
from tests.checkpoints import smolvla
from tests.laws.heads import raws, sampled, smolvla_folder, smolvla_policy
from tests.policies.vla.flow_vla_checks import (
    check_adapters,
    check_cloning,
    check_equal_gradients,
    check_half_precision,
    check_open_parameters,
    gradients,
    touched,
)
from tests.policies.vla.smolvla_reference import Reference
from tests.tiny_recipes import QUIET

NO_STATE = np.empty(0, np.float32)


def final_states(policy, observation, count: int = 3) -> torch.Tensor:
    """The states [count, 8, 8] in which the chains of `count` contexts end."""
    action = policy.act(observation, Sampling(), Noise(range(count)))
    return policy.action_padding.join(action.action[:, -5:], action.extra["padding_actions"][:, -5:])


def test_velocities_are_those_of_a_pass_without_cache():
    """Instructions of different lengths in one batch, against one row at a time."""
    policy, reference = smolvla_policy().eval(), Reference(smolvla_folder())
    observation = policy.collate([policy.encode(raw) for raw in raws(3)])
    x, time = torch.randn(3, 8, 8), torch.tensor([1.0, 0.3, 0.71])
    pixels = policy.reading.pixels(observation["images"])[:, 0]
    lengths = observation["attention_mask"].sum(dim=1).tolist()
    assert len(set(lengths)) > 1
    with torch.no_grad():
        found, _ = policy.predict(policy.encode_context(observation).prefix, x, time)
        for i, length in enumerate(lengths):
            state = torch.nn.functional.pad(observation["proprio"][i], (0, 3))
            ids = observation["input_ids"][i, :length]
            expected = reference.velocity(pixels[i], ids, state, x[i], float(time[i]))
            assert expected.abs().mean() > 0.1
            assert_close(found[i], expected, atol=1e-5, rtol=0)


def test_images_keep_their_proportion():
    """A wide image becomes 64 x 32, with 32 rows of -1 above it."""
    image = torch.full((1, 1, 20, 40, 3), 255, dtype=torch.uint8)
    pixels = smolvla_policy().reading.pixels(image)
    assert pixels.shape == (1, 1, 3, 64, 64)
    assert bool((pixels[..., :32, :] == -1).all()) and bool((pixels[..., 32:, :] == 1).all())


def test_ids_end_with_a_line_break_and_are_cut():
    policy = smolvla_policy()
    assert policy.reading.tokenizer.decode(policy.encode(raws(1)[0])["input_ids"]) == "reach the red cube\n"
    assert torch.equal(*(policy.reading.prompt_ids(word, NO_STATE) for word in ("go\n", "go")))
    assert len(policy.reading.prompt_ids("reach " * 40, NO_STATE)) == 48


def test_actions_and_loss_are_those_of_lerobot(tmp_path, monkeypatch, lerobot):
    """With the same noise, for the checkpoint and for what mmrl saves of it."""
    from lerobot.policies.smolvla import smolvlm_with_expert
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy as Original

    tokenizer = types.SimpleNamespace(fake_image_token_id=0, global_image_token_id=0)  # of prompts that are not used
    processor = types.SimpleNamespace(from_pretrained=lambda *_: types.SimpleNamespace(tokenizer=tokenizer))
    monkeypatch.setattr(smolvlm_with_expert, "AutoProcessor", processor)
    policy = smolvla_policy(FlowODE(steps=10)).eval()
    observation = policy.collate([policy.encode(raw) for raw in raws(3)])
    policy.save_pretrained(tmp_path)
    given = {
        "observation.images.image": observation["images"][:, 0].movedim(-1, 1).float() / 255,
        "observation.state": observation["proprio"],
        "observation.language.tokens": observation["input_ids"],
        "observation.language.attention_mask": observation["attention_mask"].bool(),
    }
    noise, chunk = Noise(range(3)).normal(8, 8), torch.rand(3, 8, 8) * 2 - 1
    prefix = policy.encode_context(observation).prefix
    time = torch.tensor([0.9, 0.5, 0.2])
    for folder in (smolvla_folder(), tmp_path):
        original = Original.from_pretrained(folder, strict=True).eval()
        actions = original.predict_action_chunk(dict(given), noise=noise)
        assert_close(final_states(policy, observation)[..., :3], actions, atol=1e-5, rtol=0)
        images, masks = original.prepare_images(given)
        words = given["observation.language.tokens"], given["observation.language.attention_mask"]
        state = original.prepare_state(given)
        with torch.no_grad():
            loss = original.model.forward(images, masks, *words, state, chunk, noise, time)
            share = time[:, None, None]
            found, _ = policy.predict(prefix, share * noise + (1 - share) * chunk, time)
        assert_close((found - (noise - chunk)).square(), loss, atol=1e-4, rtol=1e-5)


def test_lerobot_reads_the_processors(tmp_path, lerobot):
    """Tokens, state and actions of its pipelines, which it builds from the files of an export."""
    importlib.import_module("lerobot.policies.smolvla.processor_smolvla")  # registers a step
    from lerobot.processor import PolicyProcessorPipeline
    from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action

    state = Scale("mean_std", (0.25,) * 13, (2.0,) * 13)
    action = Scale("min_max", (0.5, 1.0, 0.0), (2.0, 0.25, 1.0), (True, True, False))
    policy = smolvla_policy(processor=Processor(vectors={"proprio": state}, action=action))
    policy.save_pretrained(tmp_path)
    before = PolicyProcessorPipeline.from_pretrained(tmp_path, config_filename="policy_preprocessor.json")
    raw = raws(1)[0]
    image = torch.from_numpy(raw["image"]).movedim(-1, 0).float() / 255
    given = {"observation.state": torch.from_numpy(raw["proprio"]), "observation.images.image": image}
    found, own = before({**given, "task": raw["instruction"]}), policy.encode(raw)
    assert torch.equal(found["observation.language.tokens"][0], own["input_ids"])
    assert_close(found["observation.state"][0], own["proprio"])
    ways = {"to_transition": policy_action_to_transition, "to_output": transition_to_policy_action}
    after = PolicyProcessorPipeline.from_pretrained(tmp_path, config_filename="policy_postprocessor.json", **ways)
    chunk = torch.randn(5, 3)
    assert_close(after(chunk).numpy(), policy.processor.decode(chunk.numpy()))


def test_a_checkpoint_in_the_published_layout_is_loaded_by_its_names():
    weights = load_file(f"{smolvla_folder()}/model.safetensors")
    inside = "model.vlm_with_expert"
    shapes = {
        f"{inside}.vlm.model.vision_model.embeddings.patch_embedding.weight": (32, 3, 16, 16),
        f"{inside}.vlm.model.vision_model.encoder.layers.1.self_attn.out_proj.weight": (32, 32),
        f"{inside}.vlm.model.connector.modality_projection.proj.weight": (32, 128),
        f"{inside}.vlm.model.text_model.layers.2.self_attn.k_proj.weight": (16, 32),
        f"{inside}.lm_expert.layers.0.self_attn.k_proj.weight": (16, 24),
        f"{inside}.lm_expert.layers.1.self_attn.k_proj.weight": (16, 16),
        f"{inside}.lm_expert.layers.2.mlp.gate_proj.weight": (256, 24),
        f"{inside}.lm_expert.norm.weight": (24,),
        "model.state_proj.weight": (32, 16),
        "model.action_in_proj.weight": (24, 8),
        "model.action_time_mlp_in.weight": (24, 48),
        "model.action_time_mlp_out.bias": (24,),
        "model.action_out_proj.weight": (8, 24),
    }
    rows = len(smolvla_policy().reading.tokenizer)
    shapes[f"{inside}.vlm.lm_head.weight"] = (rows, 32)
    assert {name: tuple(weights[name].shape) for name in shapes} == shapes
    own = smolvla_policy().model.state_dict()
    assert {f"model.{name}" for name in own} == set(weights)
    assert all(torch.equal(value, weights[f"model.{name}"]) for name, value in own.items())


def test_older_layouts_are_read(tmp_path):
    """torch.compile's prefix, no output layer, and statistics among the weights."""
    folder = smolvla(tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights["model.vlm_with_expert.vlm.lm_head.weight"]
    compiled = {name.replace("model.", "model._orig_mod.", 1): value for name, value in weights.items()}
    statistics = {
        "normalize_inputs.so100_buffer_observation_state.mean": torch.full((13,), 0.5),
        "normalize_inputs.so100_buffer_observation_state.std": torch.full((13,), 2.0),
        "unnormalize_outputs.buffer_action.mean": torch.tensor([0.1, 0.2, 0.3]),
        "unnormalize_outputs.buffer_action.std": torch.tensor([3.0, 4.0, 5.0]),
        "normalize_targets.buffer_action.min": torch.full((3,), torch.inf),
    }
    save_file(compiled | statistics, folder / "model.safetensors")
    policy = smolvla_policy(path=str(folder))
    assert policy.processor.vectors["proprio"] == Scale("mean_std", (0.5,) * 13, (2.0,) * 13)
    assert_close(np.asarray(policy.processor.action.width), np.array([3.0, 4.0, 5.0]))
    assert torch.equal(policy.model.state_proj.weight, weights["model.state_proj.weight"])


@pytest.mark.parametrize(
    ("kind", "offset", "width", "mask"),
    [
        ("mean_std", (0.5, 1.0, -2.0), (2.0, 0.25, 4.0), ()),
        ("min_max", (0.5, 1.0, 0.0), (2.0, 0.25, 1.0), (True, True, False)),
        ("quantile", (0.5, 1.0, -2.0), (2.0, 0.25, 4.0), ()),
    ],
)
def test_units_are_saved_as_lerobots_statistics(tmp_path, kind, offset, width, mask):
    units = Processor(
        vectors={"proprio": Scale("mean_std", (0.25,) * 13, (2.0,) * 13)}, action=Scale(kind, offset, width, mask)
    )
    policy = smolvla_policy(processor=units).eval()
    policy.save_pretrained(tmp_path)
    steps = json.loads((tmp_path / "policy_preprocessor.json").read_text())["steps"]
    assert [step["registry_name"] for step in steps][2:4] == ["smolvla_new_line_processor", "tokenizer_processor"]
    saved = load_file(tmp_path / steps[-1]["state_file"])
    assert_close(saved["observation.state.std"], torch.full((13,), 2.0))
    after = json.loads((tmp_path / "policy_postprocessor.json").read_text())["steps"][0]
    assert set(load_file(tmp_path / after["state_file"])) == set(saved)
    (tmp_path / "mmrl_policy.json").unlink()  # as lerobot would have saved it
    again = smolvla_policy(path=str(tmp_path)).processor
    values = np.random.default_rng(0).normal(size=(5, 3))
    assert_close(again.decode(values), units.decode(values))
    assert again.vectors == units.vectors


def test_an_export_is_the_same_policy(tmp_path):
    policy = smolvla_policy(FlowNoise(), value_head=True, horizon=6).eval()
    torch.nn.init.normal_(policy.log_std.weight, std=0.2)
    policy.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["chunk_size"] == 6
    again = smolvla_policy(FlowNoise(), path=str(tmp_path), value_head=True).eval()
    first, other = sampled(policy), sampled(again)
    assert torch.equal(first["output"], other["output"])
    assert torch.equal(policy(first).logprobs, again(first).logprobs)
    assert torch.equal(policy(first).values, again(first).values)
    assert set(load_file(tmp_path / "model.safetensors")) == set(load_file(f"{smolvla_folder()}/model.safetensors"))


def test_an_export_names_the_observations_and_actions(tmp_path):
    """Images of a checkpoint keep their names where there are as many cameras; sizes are those of the simulator."""
    smolvla_policy(action_dims=2, proprio_dims=9).save_pretrained(tmp_path / "one")
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    assert {name: part["shape"] for name, part in config["input_features"].items()} == {
        "observation.state": [9],
        "observation.images.image": [3, 32, 32],
    }
    assert config["output_features"]["action"]["shape"] == [2]
    policy = smolvla_policy(cameras=("front", "wrist")).eval()
    rows = [{**raw, "front": raw["image"], "wrist": raw["image"][::-1].copy()} for raw in raws(2)]
    observation = policy.collate([policy.encode(raw) for raw in rows])
    prefix = policy.encode_context(observation).prefix
    assert prefix[0].shape[1] == 2 * 4 + observation["input_ids"].shape[1] + 1  # images, words, state
    policy.save_pretrained(tmp_path / "two")
    names = set(json.loads((tmp_path / "two" / "config.json").read_text())["input_features"])
    assert names == {"observation.state", "observation.images.front", "observation.images.wrist"}


def test_a_frozen_context_is_read_without_gradient_and_the_state_learns():
    policy = smolvla_policy(freeze_context=True, value_head=True)
    out = policy(sampled(policy))
    names = touched(policy, out.logprobs.sum() + out.values.sum())
    for part in ("state_proj", "lm_expert", "action_in_proj", "value_head"):
        assert any(part in name for name in names), part
    assert not any(".vlm." in name for name in names)
    policy = smolvla_policy(freeze_vision=True)
    names = touched(policy, policy(sampled(policy)).logprobs.sum())
    assert any("text_model" in name for name in names)
    assert not any("vision_model" in name or "connector" in name for name in names)


def test_a_frozen_context_has_the_gradient_of_an_open_one():
    """Of the weights that learn in both."""
    found = []
    for freeze in (False, True):
        policy = smolvla_policy(freeze_context=freeze).eval()
        found.append(gradients(policy, policy(sampled(policy)).logprobs.sum()))
    assert any("state_proj" in name for name in found[1]) and found[1].keys() < found[0].keys()
    for name, slope in found[1].items():
        assert_close(slope, found[0][name], rtol=1e-4, atol=1e-5)


def test_every_open_parameter_is_in_the_graph():
    policy = smolvla_policy(FlowNoise(steps=2), value_head=True, critic="shared")
    open_names = check_open_parameters(policy)
    assert not any("lm_head" in name for name in open_names)


@pytest.mark.parametrize("freeze_context", [False, True])
def test_checkpointed_layers_have_the_same_gradient(freeze_context):
    options = {"freeze_context": freeze_context}
    plain, saving = smolvla_policy(**options), smolvla_policy(gradient_checkpointing=True, **options)
    batch = sampled(plain.eval())
    results, runs = [], []
    for policy in (plain.train(), saving.train()):
        layer = policy.model.vlm_with_expert.lm_expert.layers[1]
        layer.mlp.register_forward_pre_hook(lambda *_, which=policy is saving: runs.append(which))
        results.append(gradients(policy, policy(batch).logprobs.sum()))
    check_equal_gradients(*results)
    assert (runs.count(False), runs.count(True)) == (1, 2)


def test_adapters_learn_alone_and_are_merged(tmp_path):
    check_adapters(smolvla_policy, ".vlm.", tmp_path)


def test_half_precision_scores_what_it_drew():
    check_half_precision(smolvla_policy(dtype="bfloat16"))
    mixed = smolvla_policy().eval()
    with torch.autocast("cpu", torch.bfloat16):
        batch = sampled(mixed)
        out = mixed(batch)
    assert out.logprobs.dtype == torch.float32 and (out.logprobs - batch["behavior_logprobs"]).abs().max() < 0.1


def test_cloning_lowers_the_error():
    check_cloning(smolvla_policy(freeze_context=True))


def test_refusals(tmp_path):
    for words, message in (
        ({"action_dims": 9}, r"action_dims=9.*max_action_dim is 8"),
        ({"chunk": 9}, r"chunk=9.*chunk_size \(policy.horizon\) is 8"),
        ({"proprio_dims": 17}, r"proprio_dims=17.*max_state_dim is 16"),
        ({"path": str(tmp_path)}, "cannot be loaded"),
    ):
        with pytest.raises(ValueError, match=message):
            smolvla_policy(**words)
    folder = smolvla(tmp_path / "made")
    config = json.loads((folder / "config.json").read_text())
    for change, message in (
        ({"type": "act"}, "not smolvla"),
        ({"add_image_special_tokens": True}, "add_image_special_tokens"),
        ({"num_expert_layers": 1}, "num_expert_layers=1"),
        ({"num_vlm_layers": 4}, r"missing: vlm_with_expert"),
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message):
            smolvla_policy(path=str(folder))


def test_cloned_and_trained_from_rewards_by_words(tmp_path):
    """The folder in lerobot's format is cloned, trained for an iteration, and saved in that format."""
    small = [
        *QUIET,
        "policy=smolvla",
        "policy.chain.steps=4",
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "data.num_prompts=4",
        "data.num_minibatches=1",
        "data.evaluation.count=2",
        "engine.max_rows=8",
    ]
    clone = ["recipe=flow_bc", *small, f"policy.path='{smolvla_folder()}'", f"run_dir='{tmp_path}/clone'"]
    train = [
        "recipe=flow_sde_ppo",
        "policy.critic=shared",
        *small,
        "data.update_epochs=2",
        f"run_dir='{tmp_path}/train'",
    ]
    train.append(f"policy.path='{tmp_path}/clone/policy'")
    weights = [load_file(f"{smolvla_folder()}/model.safetensors")]
    for words in (clone, train):
        CLI(to_lightning(compose(words))).fit()
        folder = tmp_path / ("clone" if words is clone else "train") / "policy"
        weights.append(load_file(folder / "model.safetensors"))
        assert json.loads((folder / "mmrl_policy.json").read_text())["class"] == SmolVLAPolicy.__name__
    for before, after in itertools.pairwise(weights):
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert any("lm_expert" in name for name in changed) and "model.state_proj.weight" in changed
        assert not any(".vlm." in name for name in changed)
