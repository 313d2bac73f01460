"""OpenVLA in its authors' format: it computes what the original does, learns where it may, and is saved as it came."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import sims
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.distributed.first_process import build_without_weights, has_weights
from mmrl.distributed.sharding import _blocks
from mmrl.policies.processor import Gripper, Processor
from mmrl.policies.vla.openvla.images import ImageSettings, crop_centre
from mmrl.policies.vla.openvla.model import OpenVLA
from mmrl.policies.vla.openvla.policy import OpenVLAPolicy
from mmrl.policies.vla.openvla.settings import read_settings
from mmrl.policies.vla.scale import Scale
from tests.laws.heads import openvla_folder, openvla_policy, raws, sampled
from tests.policies.vla.checkpoints.openvla_checkpoint import MEANS, STDS, openvla
from tests.policies.vla.flow_vla_checks import gradients, touched
from tests.policies.vla.openvla_reference import Reference
from tests.tiny_recipes import QUIET

ROBOT = {"action": {"q01": [-2.0, -1.0, 0.0], "q99": [2.0, 0.5, 1.0], "mask": [True, True, False]}}
NO_STATE = np.empty(0, np.float32)
ORIGINAL = "MMRL_OPENVLA_ORIGINAL"


@pytest.mark.parametrize("fused", [True, False])
def test_logits_are_those_of_the_equations(tmp_path, fused):
    """Instructions of different lengths in one batch, against one row at a time; one image encoder or two."""
    folder = openvla_folder()
    if not fused:
        one = {"timm_model_ids": ["vit_tiny_patch16_224"], "image_sizes": [16], "use_fused_vision_backbone": False}
        folder = str(openvla(tmp_path, **one))
    policy, reference = openvla_policy(path=folder).eval(), Reference(folder)
    observation = policy.collate([policy.encode(raw) for raw in raws(3)])
    chosen = torch.from_numpy(np.random.default_rng(0).integers(0, 32, (3, 15)))
    lengths = observation["attention_mask"].sum(dim=1).tolist()
    assert len(set(lengths)) == 3
    pixels = policy.reading.pixels(observation["images"])[:, 0]
    with torch.no_grad():
        found, _ = policy.network.score(policy._prepare(observation), chosen)
        for i, length in enumerate(lengths):
            expected = reference.action_logits(pixels[i], observation["input_ids"][i, :length], chosen[i])
            assert expected.std() > 0.1
            assert_close(found[i], expected, atol=1e-5, rtol=0)


def test_a_prompt_ends_with_the_empty_token():
    policy = openvla_policy()
    ids = policy.encode({**raws(1)[0], "instruction": "Reach THE cube"})["input_ids"]
    words = policy.reading.tokenizer.convert_ids_to_tokens(ids)
    text = "".join(words).replace("▁", " ").replace("<0x0A>", "\n")
    assert text == "<s> In: What action should the robot take to reach the cube?\nOut: "
    assert torch.equal(*(policy.reading.prompt_ids(word, NO_STATE) for word in ("reach the cube", "Reach the cube")))


def test_bins_are_the_published_tokens():
    """numpy's digitize of 256 edges, counted down from the end of the vocabulary; 1 alone meets the last token."""
    policy = openvla_policy()
    edges = np.linspace(-1, 1, 32)
    values = np.random.default_rng(0).uniform(-1.2, 1.2, (5, 3)).astype(np.float32)
    values[0] = [-1.0, 1.0, 0.0]
    ids = policy.encode_demonstration({}, values)
    end = policy.model.settings.action_token_end
    assert policy.model.action_tokens(ids).tolist() == (end - np.digitize(values.clip(-1, 1), edges)).flatten().tolist()
    assert ids[:2].tolist() == [0, 31]
    done = policy.act(policy.collate([policy.encode(raws(1)[0])]), Sampling(), Noise([1]))
    centres = (edges[:-1] + edges[1:]) / 2
    assert_close(done.output[0].flatten(), centres[done.action[0].clamp(max=30).numpy()].astype(np.float32))


def test_actions_are_those_of_the_original(tmp_path):
    """Pixels, logits and greedy actions of modeling_prismatic.py under its own transformers and timm."""
    if ORIGINAL not in os.environ:
        pytest.skip(f"{ORIGINAL} names no folders with transformers 4.40.1, timm 0.9.16 and the original's files")
    folder = openvla(tmp_path / "made", n_action_bins=256, norm_stats={"robot": ROBOT})
    given, chosen = raws(3), np.random.default_rng(0).integers(0, 256, (3, 3))
    policy = openvla_policy(path=str(folder), chunk=1).eval()
    texts = [f"In: What action should the robot take to {raw['instruction']}?\nOut:" for raw in given]
    np.savez(tmp_path / "in", images=np.stack([raw["image"] for raw in given]), prompts=texts, dims=3, chosen=chosen)
    policy.save_pretrained(tmp_path / "saved")
    observation = policy.collate([policy.encode(raw) for raw in given])
    inputs, action = policy._prepare(observation), policy.act(observation, Sampling(decode="argmax"), Noise(range(3)))
    script = Path(__file__).parent / "openvla_original.py"
    for place in (folder, tmp_path / "saved"):
        command = [sys.executable, script, place, tmp_path / "in.npz", tmp_path / "out.npz"]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": os.environ[ORIGINAL]}, check=True)
        want = np.load(tmp_path / "out.npz")
        assert_close(inputs["pixel_values"][:, 0].numpy(), want["pixels"], atol=0, rtol=0)
        found, _ = policy.network.score(inputs, torch.from_numpy(chosen))
        assert_close(found.detach().numpy(), want["logits"], atol=1e-5, rtol=0)
        assert_close(np.stack(action.output)[:, 0], want["actions"].astype(np.float32), atol=1e-6, rtol=1e-6)


def test_a_checkpoint_in_the_published_layout_is_loaded_by_its_names():
    weights = load_file(f"{openvla_folder()}/model.safetensors")
    shapes = {
        "vision_backbone.featurizer.blocks.0.ls1.scale_factor": (16,),
        "vision_backbone.featurizer.reg_token": (1, 4, 16),
        "vision_backbone.featurizer.patch_embed.proj.weight": (16, 3, 8, 8),
        "vision_backbone.fused_featurizer.blocks.2.attn.qkv.weight": (72, 24),
        "vision_backbone.fused_featurizer.attn_pool.kv.weight": (48, 24),
        "projector.fc1.weight": (160, 40),
        "projector.fc2.weight": (32, 160),
        "projector.fc3.bias": (32,),
        "language_model.model.layers.1.self_attn.q_proj.weight": (32, 32),
        "language_model.lm_head.weight": (192, 32),
    }
    assert {name: tuple(weights[name].shape) for name in shapes} == shapes
    own = openvla_policy().model.state_dict()
    assert {name.replace(".gamma", ".scale_factor") for name in own} == set(weights)
    assert all(torch.equal(value, weights[name.replace(".gamma", ".scale_factor")]) for name, value in own.items())


def test_the_published_size(tmp_path):
    """The modules of openvla/openvla-7b by its config.json have 7,541,237,184 numbers, as many as its files."""
    names = ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"]
    text = {"model_type": "llama", "pad_token_id": 32000, "torch_dtype": "bfloat16", "vocab_size": 32064}
    config = {"model_type": "openvla", "timm_model_ids": names, "image_sizes": [224, 224], "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps({**config, "use_fused_vision_backbone": True}))
    settings = read_settings(str(tmp_path))
    with torch.device("meta"):
        model = OpenVLA(settings)
    assert sum(value.numel() for value in model.state_dict().values()) == 7_541_237_184
    assert settings.action_token_end == 32000 and settings.text_config.rope_parameters["rope_theta"] == 10_000
    assert model.vision_backbone(torch.zeros(1, 6, 224, 224, device="meta")).shape == (1, 256, 2176)


@pytest.mark.parametrize("lora", [None, {"r": 4}])
def test_processes_without_weights_build_the_same_modules(lora):
    """Of sharded runs: on the meta device config.json alone is read, and layers are sharded one by one."""
    arguments = {"path": openvla_folder(), "action_dims": 3, "chunk": 5, "value_head": True, "lora": lora}
    empty, full = build_without_weights(OpenVLAPolicy, arguments), openvla_policy(value_head=True, lora=lora)
    assert not has_weights(empty) and has_weights(full)
    shapes = [{name: tuple(value.shape) for name, value in policy.state_dict().items()} for policy in (empty, full)]
    assert shapes[0] == shapes[1]
    kinds = [type(block).__name__ for block in _blocks(full, set())]
    assert kinds == ["Block"] * 6 + ["LlamaDecoderLayer"] * 2


def test_shards_are_read_and_written(tmp_path):
    folder = openvla(tmp_path)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file)
    places = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    own = openvla_policy(path=str(folder)).model.state_dict()
    assert all(torch.equal(own[name.replace(".scale_factor", ".gamma")], value) for name, value in weights.items())


def test_statistics_are_the_units(tmp_path):
    other = {"action": {"q01": [0.0] * 7, "q99": [1.0] * 7, "mask": [True] * 7}}
    folder = str(openvla(tmp_path / "made", norm_stats={"robot": ROBOT, "bridge": other}))
    policy = openvla_policy(path=folder, unnorm_key="robot").eval()
    raw, chunk = raws(1)[0], np.tile(np.array([[2.0, -0.25, 1.0]], np.float32), (5, 1))
    assert policy.encode_demonstration(raw, chunk).view(5, 3)[0].tolist() == [31, 15, 31]
    assert policy.processor.decode(np.array([1.0, 1.0, 0.25])).tolist() == [2.0, 0.5, 0.25]
    with pytest.raises(ValueError, match=r"several datasets; set policy\.unnorm_key to one of bridge, robot"):
        openvla_policy(path=folder)
    with pytest.raises(ValueError, match="none of 'push'"):
        openvla_policy(path=folder, unnorm_key="push")
    with pytest.raises(ValueError, match=r"policy\.action_dims=3, but the statistics .* are of 7"):
        openvla_policy(path=folder, unnorm_key="bridge")
    policy.save_pretrained(tmp_path / "saved")
    assert openvla_policy(path=str(tmp_path / "saved")).processor == policy.processor
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())["norm_stats"]
    assert saved["bridge"] == other
    assert {name: saved["robot"]["action"][name] for name in ("q01", "q99", "mask")} == {
        **ROBOT["action"], "q01": [-2.0, -1.0, -1.0]
    }  # fmt: skip
    (tmp_path / "saved" / "dataset_statistics.json").write_text(json.dumps({"robot": saved["robot"]}))
    (tmp_path / "saved" / "mmrl_policy.json").unlink()  # as the original would have saved it
    again = openvla_policy(path=str(tmp_path / "saved")).processor
    assert_close(again.decode(chunk), policy.processor.decode(chunk))


def test_names_and_gripper_of_a_robot_go_with_the_statistics(tmp_path):
    """As LIBERO's README says: 1 of the network opens, which is -1 of the simulator."""
    readme = (Path(sims.__path__[0]) / "libero" / "README.md").read_text()
    given = yaml.safe_load(re.search(r"policy\.processor\.gripper=(\{.*?\})", readme)[1])
    scaled = {"q01": [-1.0] * 7, "q99": [3.0] * 6 + [1.0], "mask": [True] * 6 + [False]}
    folder = str(openvla(tmp_path / "made", norm_stats={"libero_object": {"action": scaled}, "bridge": ROBOT}))
    arguments = {"path": folder, "action_dims": 7, "unnorm_key": "libero_object"}
    policy = openvla_policy(**arguments, processor=Processor(names={"front": "image"}, gripper=Gripper(**given)))
    network = np.array([[0.5] * 6 + [1.0], [0.0] * 6 + [0.0]])
    assert policy.processor.decode(network).tolist() == [[2.0] * 6 + [-1.0], [1.0] * 6 + [1.0]]
    raw = raws(1)[0]
    policy.encode({"front": raw.pop("image"), **raw})
    with pytest.raises(ValueError, match="image"):
        policy.encode(raw)
    policy.save_pretrained(tmp_path / "saved")
    assert openvla_policy(**arguments | {"path": str(tmp_path / "saved")}).processor == policy.processor
    other = Processor(action=Scale("quantile", (0.0,) * 7, (1.0,) * 7, (True,) * 6 + (False,)))
    with pytest.raises(
        ValueError, match=r"statistics of its own, .*\n.*action\.offset.*\n.*action\.width.*\nleave these"
    ):
        openvla_policy(**arguments, processor=other)
    with pytest.raises(ValueError, match=r"several datasets; set policy\.unnorm_key"):  # normalised actions otherwise
        openvla_policy(path=folder, action_dims=7, processor=Processor(gripper=Gripper(**given)))
    with pytest.raises(ValueError, match=r"gripper\.dim=5 is scaled as well"):
        openvla_policy(**arguments, processor=Processor(gripper=Gripper(dim=5)))


def test_a_robot_of_its_own_gets_statistics_of_its_own(tmp_path):
    units = Processor(action=Scale("min_max", (0.5, 1.0, 0.0), (2.0, 0.25, 1.0), (True, True, False)))
    folder = openvla(tmp_path / "made", norm_stats={"robot": ROBOT, "bridge": ROBOT})
    with pytest.raises(ValueError, match="several datasets"):
        openvla_policy(path=str(folder))
    policy = openvla_policy(path=str(folder), processor=units)
    policy.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())["norm_stats"]
    assert set(saved) == {"robot", "bridge", "mmrl"}
    assert saved["mmrl"]["action"]["q99"] == [2.5, 1.25, 1.0] and saved["mmrl"]["action"]["mask"] == [True, True, False]


@pytest.mark.parametrize("strategy", ["resize-naive", "resize-crop", "letterbox"])
def test_images_are_fitted_as_torchvision_does(strategy):
    """Wide, tall and odd images; the two normalisations stand on top of each other."""
    from torchvision.transforms import functional as F

    settings = ImageSettings(((16, 16),) * 2, ("bicubic",) * 2, tuple(map(tuple, MEANS)), tuple(map(tuple, STDS)))
    settings = ImageSettings(settings.sizes, settings.interpolations, settings.means, settings.stds, strategy)
    for height, width in ((20, 41), (33, 16), (30, 30)):
        image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        picture = Image.fromarray(image)
        if strategy == "letterbox":
            sides = [int((max(picture.size) - side) / 2) for side in picture.size]
            picture = F.pad(picture, sides, fill=tuple(int(value * 255) for value in MEANS[0]))
        size = (16, 16) if strategy == "resize-naive" else 16
        fitted = F.center_crop(F.resize(picture, size, F.InterpolationMode.BICUBIC), (16, 16))
        want = torch.cat([F.normalize(F.to_tensor(fitted), *pair) for pair in zip(MEANS, STDS)])
        assert_close(settings.pixels(torch.from_numpy(image)[None])[0], want, atol=1e-6, rtol=0)


def test_the_centre_of_an_image_is_enlarged():
    """Of a ramp from 0 to 1 the middle 0.6 x 0.6 is a ramp from 0.2 to 0.8."""
    ramp = torch.linspace(0, 250, 26).round().to(torch.uint8).expand(1, 3, 26, 26).movedim(1, -1)
    cut = crop_centre(ramp, 0.36)
    assert cut.shape == ramp.shape and cut.dtype == torch.uint8
    assert_close(cut[0, 0, :, 0].float(), torch.linspace(50, 200, 26), atol=1.5, rtol=0)
    assert crop_centre(ramp, 1.0) is ramp
    assert not torch.equal(
        openvla_policy(crop=0.5).reading.pixels(torch.arange(768, dtype=torch.uint8).view(1, 1, 16, 16, 3)),
        openvla_policy().reading.pixels(torch.arange(768, dtype=torch.uint8).view(1, 1, 16, 16, 3)),
    )


def test_what_is_frozen_and_what_learns():
    policy = openvla_policy(value_head=True)
    out = policy(sampled(policy))
    open_names = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert set(gradients(policy, out.logprobs.sum() + out.values.sum())) == open_names
    for part in ("featurizer.blocks.2.", "fused_featurizer.attn_pool", "featurizer.norm."):
        assert not any(part in name for name in open_names)
    policy = openvla_policy(freeze_vision=True)
    names = touched(policy, policy(sampled(policy)).logprobs.sum())
    assert names and all("language_model" in name for name in names)


def test_what_a_value_trains():
    for critic, trained in (("shared", True), ("detached", False)):
        policy = openvla_policy(value_head=True, critic=critic)
        assert any("language_model" in n for n in touched(policy, policy(sampled(policy)).values.sum())) is trained


def test_checkpointed_layers_have_the_same_gradient():
    plain, saving = openvla_policy(), openvla_policy(gradient_checkpointing=True)
    batch, results, runs = sampled(plain.eval()), [], []
    for policy in (plain.train(), saving.train()):
        for module in (policy.model.language_model.model.layers[0], policy.model.vision_backbone.featurizer.blocks[0]):
            module.mlp.register_forward_pre_hook(lambda *_, which=policy is saving: runs.append(which))
        results.append(gradients(policy, policy(batch).logprobs.sum()))
    assert results[0].keys() == results[1].keys() and results[0]
    for name, slope in results[0].items():
        assert_close(slope, results[1][name], rtol=1e-4, atol=1e-5)
    assert (runs.count(False), runs.count(True)) == (2, 4)


def test_adapters_learn_alone_and_are_merged(tmp_path):
    policy = openvla_policy(freeze_vision=True, lora={"r": 4})
    names = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert names and all("lora_" in name for name in names) and not any("vision" in name for name in names)
    assert any("lm_head" in name for name in names)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    policy.eval().save_pretrained(tmp_path)
    batch = sampled(policy)
    assert_close(policy(batch).logprobs, openvla_policy(path=str(tmp_path)).eval()(batch).logprobs, atol=1e-4, rtol=0)
    assert (policy(batch).logprobs - openvla_policy().eval()(batch).logprobs).abs().max() > 0.1
    assert set(load_file(tmp_path / "model.safetensors")) == set(load_file(f"{openvla_folder()}/model.safetensors"))


def test_an_export_is_the_same_policy(tmp_path):
    policy = openvla_policy(value_head=True).eval()
    policy.save_pretrained(tmp_path)
    again = openvla_policy(path=str(tmp_path), value_head=True).eval()
    batch = sampled(policy)
    assert torch.equal(policy(batch).logprobs, again(batch).logprobs)
    assert torch.equal(policy(batch).values, again(batch).values)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (Path(openvla_folder()) / name).read_bytes()
    old, new = (json.loads((Path(place) / "config.json").read_text()) for place in (openvla_folder(), tmp_path))
    assert all(new[name] == value for name, value in old.items() if name != "norm_stats")
    assert new["norm_stats"]["mmrl"]["action"]["mask"] == [False] * 3  # actions in the simulator's units


def test_tied_weights_are_one(tmp_path):
    """A checkpoint whose output layer is its word embeddings, which published ones are not."""
    folder = openvla(tmp_path / "made")
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    del weights["language_model.lm_head.weight"]
    save_file(weights, folder / "model.safetensors")
    policy = openvla_policy(path=str(folder))
    llama = policy.model.language_model
    assert llama.lm_head.weight is llama.model.embed_tokens.weight
    policy.save_pretrained(tmp_path / "saved")
    assert load_file(tmp_path / "saved" / "model.safetensors").keys() == weights.keys()


def test_half_precision_scores_what_it_drew():
    policy = openvla_policy(dtype="bfloat16", lora={"r": 2}).eval()
    batch = sampled(policy)
    assert policy.network.dtype == torch.bfloat16 and batch["behavior_logprobs"].dtype == torch.float32
    assert (policy(batch).logprobs - batch["behavior_logprobs"]).abs().max() < 0.2
    mixed = openvla_policy().eval()
    with torch.autocast("cpu", torch.bfloat16):
        batch = sampled(mixed)
        out = mixed(batch)
    assert out.logprobs.dtype == torch.float32 and (out.logprobs - batch["behavior_logprobs"]).abs().max() < 0.2


def test_truncated_sampling_is_scored_by_what_was_kept():
    policy = openvla_policy().eval()
    batch = sampled(policy, sampling=Sampling(top_p=0.7))
    assert batch["support_ids"].shape[:2] == (6, 15) and (batch["support_ids"] == -1).any()
    assert_close(policy(batch).logprobs, batch["behavior_logprobs"], atol=1e-4, rtol=0)


def test_refusals(tmp_path):
    folder = openvla(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for change, message in (
        ({"model_type": "llava"}, "not openvla"),
        ({"text_config": {"model_type": "phi"}}, "on Llama only"),
        ({"timm_model_ids": ["vit_tiny_patch16_224"]}, "1 timm_model_ids, but 2 image encoders"),
        ({"image_sizes": None}, r"lacks \['image_sizes'\]"),
        ({"text_config": config["text_config"] | {"num_hidden_layers": 3}}, r"missing: language_model\.model\.layers"),
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message):
            openvla_policy(path=str(folder))
    for words, message in (
        ({"cameras": ("image", "wrist")}, "reads one image"),
        ({"proprio_dims": 8}, "policy=openvla_oft"),
        ({"path": str(tmp_path / "none")}, "no such folder"),
    ):
        with pytest.raises(ValueError, match=message):
            openvla_policy(**words)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(5, 3\)"):
        openvla_policy().encode_demonstration({}, np.zeros((4, 3)))


def test_a_demonstration_that_is_not_finite_is_refused():
    chunk = np.zeros((5, 3), np.float32)
    chunk[2, 1] = np.nan
    with pytest.raises(ValueError, match="nan in control step 2, dimension 1"):
        openvla_policy().encode_demonstration({}, chunk)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["recipe=bc"], id="clone", marks=pytest.mark.slow),
        pytest.param(["recipe=demo_vla", "data.group_size=2"], id="grpo"),
        pytest.param(["recipe=ppo_vla", "policy.critic=shared"], id="ppo", marks=pytest.mark.slow),
    ],
)
def test_trained_by_words(tmp_path, words):
    """The published folder is cloned or trained for an iteration by GRPO or PPO, and saved in its format."""
    small = [
        *QUIET,
        "policy=openvla",
        "policy.lora.r=4",
        "trainer.max_epochs=1",
        "data.num_prompts=2",
        "data.num_minibatches=1",
        "data.evaluation=null",
        "engine.max_rows=8",
    ]
    CLI(to_lightning(compose([*words, *small, f"policy.path='{openvla_folder()}'", f"run_dir='{tmp_path}'"]))).fit()
    before, after = (load_file(f"{place}/model.safetensors") for place in (openvla_folder(), tmp_path / "policy"))
    assert json.loads((tmp_path / "policy" / "mmrl_policy.json").read_text())["class"] == OpenVLAPolicy.__name__
    assert after.keys() == before.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert "recipe=demo_vla" in words or any("language_model.model.layers" in name for name in changed)
    assert not any("norm" in name for name in changed)
