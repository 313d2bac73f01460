"""OpenVLA-OFT: a chunk in one pass, as action tokens or by its L1 head; several images and proprioception."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.policies.vla.chains import DDIM, GaussianChunk
from tests.laws.heads import (
    demonstrated,
    openvla_folder,
    openvla_oft_diffusion_folder,
    openvla_oft_diffusion_policy,
    openvla_oft_folder,
    openvla_oft_l1_policy,
    openvla_oft_policy,
    raws,
    sampled,
)
from tests.policies.vla.checkpoints.openvla_oft_checkpoint import openvla_oft
from tests.policies.vla.flow_vla_checks import gradients
from tests.policies.vla.openvla_reference import Reference
from tests.policies.vla.test_openvla import ORIGINAL, ROBOT
from tests.tiny_recipes import QUIET

CAMERAS = ("image", "wrist")


def two_views(count: int) -> list[dict]:
    return [{**raw, "wrist": raw["image"][::-1].copy()} for raw in raws(count)]


def component(name: str, folder: str | None = None) -> dict[str, torch.Tensor]:
    (file,) = Path(folder or openvla_oft_folder()).glob(f"{name}--*checkpoint.pt")
    return {key.removeprefix("module."): value for key, value in torch.load(file, weights_only=True).items()}


def hidden_by_hand(policy, observation, row: int, actions=None, time=None) -> torch.Tensor:
    """Features [15, 32] that the numbers of one row are read from, from the equations."""
    reference = Reference(policy.path, causal=not policy.bidirectional)
    own, silu = component("proprio_projector"), torch.nn.functional
    actions = torch.zeros(15, 32) if actions is None else actions
    time = torch.zeros(0, 32) if time is None else time
    ids = observation["input_ids"][row, : observation["attention_mask"][row].sum()]
    pixels = policy.reading.pixels(observation["images"])[row]
    proprio = silu.linear(observation["proprio"][row], own["fc1.weight"], own["fc1.bias"])
    proprio = silu.linear(silu.gelu(proprio), own["fc2.weight"], own["fc2.bias"])
    words, stop = reference.embed(ids), reference.embed(torch.tensor([2]))
    parts = [words[:1], *(reference.patches(view) for view in pixels), proprio[None], time, words[1:]]
    tokens = torch.cat([*parts, actions, stop])
    first = len(tokens) - 17  # the empty token, which the first number is read from
    return reference.llama(tokens)[first : first + 15]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_logits_and_regression_are_those_of_the_equations(bidirectional):
    """Two images, proprioception, and instructions of different lengths in one batch, against one row at a time."""
    options = {"cameras": CAMERAS, "bidirectional": bidirectional}
    tokens, numbers = openvla_oft_policy(**options).eval(), openvla_oft_l1_policy(**options).eval()
    observation = tokens.collate([tokens.encode(raw) for raw in two_views(3)])
    head, reference = component("action_head"), Reference(tokens.path)
    with torch.no_grad():
        logits, _ = tokens.network.score(tokens._prepare(observation), torch.zeros(3, 15, dtype=torch.long))
        prefix = numbers.encode_context(observation).prefix
        mean, _ = numbers.predict(prefix, torch.zeros(3, 5, 3), torch.ones(3))
        for row in range(3):
            hidden = hidden_by_hand(tokens, observation, row)
            assert_close(logits[row], reference.logits(hidden), atol=1e-5, rtol=0)
            assert_close(mean[row], perceptron(head, hidden.view(5, 96), "model"), atol=1e-5, rtol=0)


def perceptron(own: dict[str, torch.Tensor], x: torch.Tensor, place: str) -> torch.Tensor:
    """Two residual blocks between two linear layers."""

    def part(name: str, x: torch.Tensor, kind) -> torch.Tensor:
        weight, bias = own[f"{place}.{name}.weight"], own[f"{place}.{name}.bias"]
        return kind(x, x.shape[-1:], weight, bias) if kind is torch.layer_norm else kind(x, weight, bias)

    linear = torch.nn.functional.linear
    x = part("fc1", part("layer_norm1", x, torch.layer_norm), linear).relu()
    for block in ("mlp_resnet_blocks.0.ffn", "mlp_resnet_blocks.1.ffn"):
        x = x + part(f"{block}.1", part(f"{block}.0", x, torch.layer_norm), linear).relu()
    return part("fc2", part("layer_norm2", x, torch.layer_norm), linear)


def test_noise_is_that_of_the_equations():
    """Noisy numbers in place of the placeholders, and the timestep after proprioception."""
    policy = openvla_oft_diffusion_policy(cameras=CAMERAS).eval()
    observation = policy.collate([policy.encode(raw) for raw in two_views(3)])
    x, timestep = torch.randn(3, 5, 3), torch.tensor([49.0, 20.0, 0.0])
    own = torch.load(f"{policy.path}/noisy_action_projector--150000_checkpoint.pt", weights_only=True)
    first, second = ([own[f"module.{name}.{part}"] for part in ("weight", "bias")] for name in ("fc1", "fc2"))
    linear = torch.nn.functional.linear
    with torch.no_grad():
        noise, _ = policy.predict(policy.encode_context(observation).prefix, x, (timestep + 1) / 50)
        for row in range(3):
            actions = linear(torch.nn.functional.gelu(linear(x[row].reshape(15, 1), *first)), *second)
            angle = timestep[row] / 10_000 ** (torch.arange(16) / 15)
            time = torch.cat([angle.sin(), angle.cos()])
            hidden = hidden_by_hand(policy, observation, row, actions, time[None])
            head = component("action_head", policy.path)
            assert_close(
                noise[row], perceptron(head, hidden.view(5, 96), "noise_predictor.mlp_resnet"), atol=1e-5, rtol=0
            )


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("diffusion", [True, False])
def test_actions_are_those_of_the_original(tmp_path, bidirectional, diffusion):
    """Regressed actions, noise and features of modeling_prismatic.py of OpenVLA-OFT."""
    if ORIGINAL not in os.environ:
        pytest.skip(f"{ORIGINAL} names no folders with transformers 4.40.1, timm 0.9.16 and the original's files")
    own = {"proprio": {"q01": [-1.0] * 13, "q99": [1.0] * 13, "mask": [True] * 13}}
    folder = openvla_oft(tmp_path / "made", diffusion=diffusion, norm_stats={"robot": {**ROBOT, **own}})
    options = {"path": str(folder), "cameras": CAMERAS, "bidirectional": bidirectional}
    build = openvla_oft_diffusion_policy if diffusion else openvla_oft_l1_policy
    policy, given = build(**options).eval(), two_views(3)
    observation = policy.collate([policy.encode(raw) for raw in given])
    x, timestep = torch.randn(3, 5, 3), torch.tensor([49.0, 20.0, 0.0])
    np.savez(
        tmp_path / "in",
        images=np.stack([[raw[name] for name in CAMERAS] for raw in given]),
        prompts=[f"In: What action should the robot take to {raw['instruction']}?\nOut:" for raw in given],
        proprio=observation["proprio"].numpy(),
        dims=3,
        chunk=5,
        bidirectional=bidirectional,
        x=x.numpy(),
        timestep=timestep.numpy(),
    )
    policy.save_pretrained(tmp_path / "saved")
    script = Path(__file__).parent / "openvla_oft_original.py"
    for place in (folder, tmp_path / "saved"):
        command = [sys.executable, script, place, tmp_path / "in.npz", tmp_path / "out.npz"]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": os.environ[ORIGINAL]}, check=True)
        want = np.load(tmp_path / "out.npz")
        with torch.no_grad():
            hidden = policy.network.decode(policy._prepare(observation), 15)
            prefix = policy.encode_context(observation).prefix
            found, _ = policy.predict(prefix, x, (timestep + 1) / 50)
        assert_close(hidden.numpy(), want["hidden"], atol=1e-5, rtol=0)
        assert_close(found.numpy(), want["noise" if diffusion else "regression"], atol=1e-5, rtol=0)


def test_numbers_are_independent_given_the_context():
    """Another choice before it changes no log-prob, and one pass of the language model samples a chunk."""
    policy = openvla_oft_policy().eval()
    batch, runs = sampled(policy), []
    changed = batch["action"].clone()
    changed[:, 0] = (changed[:, 0] + 7) % 31
    assert_close(policy(batch.with_columns(action=changed)).logprobs[:, 1:], policy(batch).logprobs[:, 1:])
    policy.model.language_model.model.register_forward_pre_hook(lambda *_: runs.append(1))
    sampled(policy)
    assert len(runs) == 1


def test_proprioception_is_clipped_to_the_statistics(tmp_path):
    own = {"proprio": {"q01": [-1.0] * 13, "q99": [3.0] * 13, "mask": [True] * 13}}
    folder = str(openvla_oft(tmp_path / "made", norm_stats={"robot": {**ROBOT, **own}}))
    policy = openvla_oft_policy(path=folder)
    raw = {**raws(1)[0], "proprio": np.array([2.0, 9.0, -5.0] + [1.0] * 10, np.float32)}
    assert policy.encode(raw)["proprio"].tolist() == [0.5, 1.0, -1.0] + [0.0] * 10
    policy.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())["norm_stats"]["robot"]["proprio"]
    assert saved["q01"] == [-1.0] * 13 and saved["q99"] == [3.0] * 13
    assert openvla_oft_policy().encode(raw)["proprio"].tolist() == raw["proprio"].tolist()  # without statistics


def test_extremes_are_the_units_of_other_robots(tmp_path):
    robot = {"action": {**ROBOT["action"], "min": [-4.0, -1.0, 0.0], "max": [4.0, 3.0, 1.0]}}
    folder = str(openvla_oft(tmp_path, norm_stats={"robot": robot}))
    assert openvla_oft_policy(path=folder, statistics="min_max").processor.action.width[:2] == (4.0, 2.0)
    assert openvla_oft_policy(path=folder).processor.action.width[:2] == (2.0, 0.75)
    assert openvla_oft_l1_policy(path=folder, statistics="min_max").bound == 1.0
    assert openvla_oft_l1_policy(path=folder).bound is None  # regressed actions may be beyond the quantiles


def test_components_are_read_and_written_under_the_published_names(tmp_path):
    policy = openvla_oft_l1_policy(value_head=True).eval()
    policy.save_pretrained(tmp_path)
    for name in ("proprio_projector", "action_head"):
        saved = torch.load(tmp_path / f"{name}--latest_checkpoint.pt", weights_only=True)
        assert saved.keys() == component(name).keys()
        assert all(torch.equal(saved[key], value) for key, value in component(name).items())
    assert set(load_file(tmp_path / "model.safetensors")) == set(load_file(f"{openvla_folder()}/model.safetensors"))
    again, batch = openvla_oft_l1_policy(path=str(tmp_path), value_head=True).eval(), sampled(policy)
    assert torch.equal(policy(batch).logprobs, again(batch).logprobs)
    assert torch.equal(policy(batch).values, again(batch).values)


def test_a_new_component_is_trained(caplog):
    """From OpenVLA's own weights; a file of another size is refused."""
    openvla_oft_l1_policy(path=openvla_folder())
    assert "has no action_head: a new one is trained" in caplog.text
    with pytest.raises(ValueError, match=r"fc1\.weight \[32, 13\] \(here \[32, 8\]\)"):
        openvla_oft_policy(proprio_dims=8)


def test_what_is_not_computed_is_refused(tmp_path):
    folder = openvla_oft(tmp_path)
    torch.save({}, folder / "vision_backbone--50000_checkpoint.pt")
    with pytest.raises(ValueError, match="FiLM"):
        openvla_oft_policy(path=str(folder))
    for build in (openvla_oft_policy, openvla_oft_l1_policy):
        with pytest.raises(ValueError, match=r"a diffusion head: set policy=openvla_oft_diffusion"):
            build(path=openvla_oft_diffusion_folder())
    with pytest.raises(ValueError, match="predicts the epsilon, but this head predicts the mean: take GaussianChunk"):
        openvla_oft_l1_policy(DDIM())
    with pytest.raises(ValueError, match="predicts the mean, but this head predicts the epsilon: take DDIM or DDPM"):
        openvla_oft_diffusion_policy(GaussianChunk())


def test_heads_are_trained_as_a_whole_beside_adapters(tmp_path):
    policy = openvla_oft_l1_policy(lora={"r": 4}, freeze_vision=True)
    names = {name for name, p in policy.named_parameters() if p.requires_grad}
    rest = {name for name in names if "lora_" not in name}
    assert names - rest and all("lora_" not in name for name in names if "action_head" in name)
    assert all(any(part in name for part in ("action_head", "proprio_projector", "log_std")) for name in rest)
    assert any("proprio_projector" in name for name in rest)
    policy.eval().save_pretrained(tmp_path)
    batch = sampled(policy)
    assert_close(policy(batch).logprobs, openvla_oft_l1_policy(path=str(tmp_path)).eval()(batch).logprobs)


def test_the_diffusion_head_samples_learns_and_is_saved(tmp_path):
    """Scores are those of sampling, demonstrations give an error of the noise, and an export is the same policy."""
    policy = openvla_oft_diffusion_policy(value_head=True).eval()
    batch = sampled(policy)
    out = policy(batch)
    assert_close(out.logprobs, batch["behavior_logprobs"], atol=1e-4, rtol=0)
    error = policy(demonstrated(policy, np.zeros((2, 5, 3), np.float32))).extra["denoising_error"]
    assert error.shape == (2, 5, 3, 1) and error.abs().mean() > 0.1
    policy.save_pretrained(tmp_path)
    again = openvla_oft_diffusion_policy(path=str(tmp_path), value_head=True).eval()(batch)
    assert torch.equal(out.logprobs, again.logprobs) and torch.equal(out.values, again.values)


@pytest.mark.parametrize("build", [openvla_oft_policy, openvla_oft_l1_policy])
def test_scoring_again_gives_ratio_one(build):
    policy = build().eval()
    batch = sampled(policy)
    assert_close(policy(batch).logprobs, batch["behavior_logprobs"], atol=1e-4, rtol=0)
    row = batch.select(torch.tensor([4]))  # without the padding that it was sampled with
    assert_close(policy(row).logprobs, row["behavior_logprobs"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("build", [openvla_oft_policy, openvla_oft_l1_policy, openvla_oft_diffusion_policy])
def test_every_open_parameter_is_in_the_graph(build):
    policy = build(value_head=True)
    out = policy(sampled(policy))
    open_names = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert set(gradients(policy, out.logprobs.sum() + out.values.sum())) == open_names
    assert ("model.language_model.lm_head.weight" in open_names) is (build is openvla_oft_policy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["policy=openvla_oft", "recipe=demo_vla", "policy.proprio_dims=13"],
        ["policy=openvla_oft_l1", "recipe=flow_bc", "objective.terms.imitation.power=1"],
        ["policy=openvla_oft_l1", "recipe=gaussian_grpo"],
        ["policy=openvla_oft_diffusion", "recipe=flow_bc"],
    ],
    ids=["grpo", "clone_l1", "grpo_l1", "clone_diffusion"],
)
def test_trained_by_words(tmp_path, words):
    small = ["policy.lora.r=4", "trainer.max_epochs=1", "data.num_prompts=4", "data.num_minibatches=1"]
    small += [*QUIET, "data.evaluation=null", "engine.max_rows=8", f"run_dir='{tmp_path}'"]
    folder = openvla_oft_diffusion_folder() if "policy=openvla_oft_diffusion" in words else openvla_oft_folder()
    CLI(to_lightning(compose([*words, *small, f"policy.path='{folder}'"]))).fit()
    saved = {file.name for file in (tmp_path / "policy").iterdir()}
    assert {"model.safetensors", "proprio_projector--latest_checkpoint.pt", "config.json"} <= saved
