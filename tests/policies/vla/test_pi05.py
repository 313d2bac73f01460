"""pi0.5 in lerobot's format: it computes what lerobot computes, learns where it may, and is saved as it came."""

import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import pad, scaled_dot_product_attention, silu
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.processor import Processor
from mmrl.policies.vla.chains import FlowNoise, FlowODE
from mmrl.policies.vla.decoder_layers import rotate
from mmrl.policies.vla.paligemma.prompt import write_prompt
from mmrl.policies.vla.pi05.expert import AdaptiveRMSNorm
from mmrl.policies.vla.pi05.policy import Pi05Policy
from mmrl.policies.vla.scale import Scale
from tests.laws.heads import pi05_folder, pi05_policy, raws, sampled
from tests.policies.vla.checkpoints.pi_checkpoints import pi05
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
from tests.policies.vla.test_smolvla import final_states
from tests.tiny_recipes import QUIET


def test_adaptive_norm_by_hand():
    """RMS of (3, 4) is 5 / sqrt(2); scale 1, shift 0.5 and gate 2 come from the bias."""
    norm = AdaptiveRMSNorm(2, 0.0)
    with torch.no_grad():
        norm.dense.weight.zero_()
        norm.dense.bias.copy_(torch.tensor([1.0, 1.0, 0.5, 0.5, 2.0, 2.0]))
    found, gate = norm(torch.tensor([[[3.0, 4.0]]]), torch.zeros(1, 2))
    assert_close(found[0, 0], torch.tensor([3.0, 4.0]) * 2**0.5 / 5 * 2 + 0.5)
    assert gate.tolist() == [[[2.0, 2.0]]]


def test_prompt_by_hand():
    """256 bins from -1 to 1: 0 begins bin 128, 1 is in the last, and what lies below is -1."""
    state = np.array([-1.5, -1.0, 0.0, 0.999, 3.0])
    assert write_prompt(" push_the\ncube", state, "Action: ") == (
        "Task: push the cube, State: -1 0 128 255 255;\nAction: "
    )
    policy = pi05_policy()
    text = policy.reading.tokenizer.decode(policy.encode(raws(1)[0])["input_ids"])
    assert text.startswith("Task: reach the red cube, State: ") and text.endswith(";\nAction: ")


def plain_velocity(policy, pixels, ids, x, time) -> torch.Tensor:
    """Velocity [S, D] of one row by one pass over context and action tokens together, without cache."""
    model, vlm = policy.model, policy.model.vlm
    seen = vlm.multi_modal_projector(vlm.vision_tower(pixel_values=pixels).last_hidden_state).flatten(0, 1)
    words = vlm.language_model.embed_tokens.weight[ids] * 32**0.5
    streams = [torch.cat([seen, words]), x @ model.action_in_proj.weight.T + model.action_in_proj.bias]
    fraction = torch.linspace(0, 1, 12, dtype=torch.float64)
    angle = 2 * torch.pi * time / (4e-3 * (4.0 / 4e-3) ** fraction)
    moment = torch.cat([angle.sin(), angle.cos()]).float()
    condition = silu(model.time_mlp_out(silu(model.time_mlp_in(moment))))
    length = len(streams[0])
    mask = torch.ones(length + len(x), length + len(x), dtype=torch.bool)
    mask[:length, length:] = False
    positions = torch.arange(len(mask))[None]

    def normalise(norm, h):
        unit = h * (h.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        if not hasattr(norm, "dense"):
            return unit * (1 + norm.weight), 1.0
        scale, shift, gate = norm.dense(condition).chunk(3)
        return unit * (1 + scale) + shift, gate

    for layers in zip(vlm.language_model.layers, model.expert.layers):
        normal = [normalise(layer.input_layernorm, h) for layer, h in zip(layers, streams)]
        q, k, v = (
            torch.cat([getattr(layer.self_attn, f"{n}_proj")(h) for layer, (h, _) in zip(layers, normal)]).unflatten(
                -1, (-1, 4)
            )
            for n in "qkv"
        )
        q, k = (rotate(part[None], positions)[0] for part in (q, k))
        out = scaled_dot_product_attention(
            q.transpose(0, 1), k.expand(-1, 8, -1).transpose(0, 1), v.expand(-1, 8, -1).transpose(0, 1), attn_mask=mask
        )
        out = out.transpose(0, 1).flatten(1).split([length, len(x)])
        for i, layer in enumerate(layers):
            streams[i] = streams[i] + layer.self_attn.o_proj(out[i]) * normal[i][1]
            h, gate = normalise(layer.post_attention_layernorm, streams[i])
            streams[i] = streams[i] + layer.mlp(h) * gate
    last, _ = normalise(model.expert.norm, streams[1])
    return model.action_out_proj(last)


def test_velocities_are_those_of_a_pass_without_cache():
    """Prompts of different lengths in one batch, against one row at a time."""
    policy = pi05_policy().eval()
    observation = policy.collate([policy.encode(raw) for raw in raws(3)])
    x, time = torch.randn(3, 8, 8), torch.tensor([1.0, 0.3, 0.71])
    pixels = policy.reading.pixels(observation["images"])
    lengths = observation["attention_mask"].sum(dim=1).tolist()
    assert len(set(lengths)) > 1
    with torch.no_grad():
        found, _ = policy.predict(policy.encode_context(observation).prefix, x, time)
        for i, length in enumerate(lengths):
            expected = plain_velocity(policy, pixels[i], observation["input_ids"][i, :length], x[i], float(time[i]))
            assert expected.abs().mean() > 0.1
            assert_close(found[i], expected, atol=1e-5, rtol=0)


def test_images_are_padded_on_both_sides():
    """A wide image becomes 56 x 28 in the middle of 56 x 56, with 14 rows of -1 above and below it."""
    pixels = pi05_policy().reading.pixels(torch.full((1, 1, 20, 40, 3), 255, dtype=torch.uint8))
    assert pixels.shape == (1, 1, 3, 56, 56)
    assert bool((pixels[..., :14, :] == -1).all()) and bool((pixels[..., 42:, :] == -1).all())
    assert_close(pixels[..., 14:42, :], torch.ones(1, 1, 3, 28, 56))


@needs_lerobot
def test_it_is_lerobots_policy(tmp_path):
    """Prompt, pixels, sampled chunk, output and loss, of a checkpoint that LeRobot made and of mmrl's export of it."""
    made, own = make("pi05", tmp_path), tmp_path / "own"
    policy = pi05_policy(FlowODE(steps=10), path=str(made)).eval()
    policy.save_pretrained(tmp_path / "saved")
    rows = [{**raw, "proprio": raw["proprio"] * 0.5} for raw in raws(3)]
    observation = policy.collate([policy.encode(raw) for raw in rows])
    chunk, noise, time = torch.rand(3, 8, 3), Noise(range(3)).normal(8, 8), torch.tensor([0.9, 0.5, 0.2])
    given = {"images": torch.from_numpy(np.stack([raw["image"] for raw in rows])), "chunk": chunk, "noise": noise}
    given |= {"state": torch.from_numpy(np.stack([raw["proprio"] for raw in rows])), "time": time}
    action = policy.act(observation, Sampling(), Noise(range(3)))
    prefix, share = policy.encode_context(observation).prefix, time[:, None, None]
    real = pad(torch.from_numpy(policy.processor.encode_action(chunk.numpy())), (0, 5))
    with torch.no_grad():
        found, _ = policy.predict(prefix, share * noise + (1 - share) * real, time)
    for folder in (made, tmp_path / "saved"):
        want = run("pi05", folder, own, [raw["instruction"] for raw in rows], **given)
        length = observation["input_ids"].shape[1]
        assert torch.equal(want["tokens"][:, :length] * observation["attention_mask"], observation["input_ids"])
        assert_close(policy.reading.pixels(observation["images"])[:, 0], want["pixels"], atol=1e-6, rtol=0)
        assert_close(final_states(policy, observation)[..., :3], want["actions"], atol=1e-5, rtol=0)
        assert_close(np.stack(action.output), want["output"][:, :5].numpy(), atol=1e-5, rtol=0)
        assert_close((found - (noise - real)).square(), want["loss"], atol=1e-4, rtol=1e-5)
    assert want["actions"].abs().mean() > 0.1


def test_a_checkpoint_in_the_published_layout_is_loaded_by_its_names(tmp_path):
    weights = load_file(f"{pi05_folder()}/model.safetensors")
    inside = "paligemma_with_expert"
    shapes = {
        f"{inside}.paligemma.lm_head.weight": (600, 32),
        f"{inside}.paligemma.model.vision_tower.vision_model.embeddings.patch_embedding.weight": (32, 3, 14, 14),
        f"{inside}.paligemma.model.multi_modal_projector.linear.bias": (32,),
        f"{inside}.paligemma.model.language_model.layers.1.self_attn.k_proj.weight": (4, 32),
        f"{inside}.gemma_expert.lm_head.weight": (600, 24),
        f"{inside}.gemma_expert.model.layers.1.input_layernorm.dense.weight": (72, 24),
        f"{inside}.gemma_expert.model.norm.dense.bias": (72,),
        "action_in_proj.weight": (24, 8),
        "time_mlp_in.weight": (24, 24),
    }
    assert {name: tuple(weights[name].shape) for name in shapes} == shapes
    policy = pi05_policy()
    policy.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    words = f"model.{inside}.paligemma.model.language_model.embed_tokens.weight"
    assert {name.removeprefix("model.") for name in set(saved) - {words}} == set(weights)
    assert all(torch.equal(saved[f"model.{name}"], value) for name, value in weights.items())
    # without the output layers, as a checkpoint may come
    del saved[f"model.{inside}.paligemma.lm_head.weight"], saved[f"model.{inside}.gemma_expert.lm_head.weight"]
    save_file(saved, tmp_path / "model.safetensors")
    assert torch.equal(sampled(pi05_policy(path=str(tmp_path)).eval())["action"], sampled(policy.eval())["action"])


def test_units_are_quantiles_and_a_constant_dimension_has_lerobots_range(tmp_path):
    units = Processor(
        vectors={"proprio": Scale("quantile", (0.25,) * 13, (2.0,) * 13)},
        action=Scale("quantile", (0.5, 1.0, -2.0), (2.0, 0.25, 4.0)),
    )
    pi05_policy(processor=units).save_pretrained(tmp_path)
    (tmp_path / "mmrl_policy.json").unlink()  # as lerobot would have saved it
    policy = pi05_policy(path=str(tmp_path)).eval()
    assert policy.processor.vectors == units.vectors and policy.bound is None
    name = next(tmp_path.glob("policy_preprocessor_*.safetensors"))
    statistics = load_file(name)
    assert_close(statistics["action.q99"], torch.tensor([2.5, 1.25, 2.0]))
    save_file(statistics | {"action.q99": statistics["action.q01"].clone()}, name)
    still = pi05_policy(path=str(tmp_path)).processor
    assert_close(still.encode_action(statistics["action.q01"].numpy()), np.full(3, -1, np.float32), atol=1e-4, rtol=0)
    assert_close(still.decode(np.zeros(3)), statistics["action.q01"].numpy(), atol=1e-6, rtol=0)


def test_an_export_is_the_same_policy(tmp_path):
    policy = pi05_policy(FlowNoise(), value_head=True, horizon=6).eval()
    torch.nn.init.normal_(policy.log_std.weight, std=0.2)
    policy.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["chunk_size"], config["n_action_steps"]) == (6, 6)
    again = pi05_policy(FlowNoise(), path=str(tmp_path), value_head=True).eval()
    first, other = sampled(policy), sampled(again)
    assert torch.equal(first["output"], other["output"])
    assert torch.equal(policy(first).logprobs, again(first).logprobs)
    assert torch.equal(policy(first).values, again(first).values)


def test_what_is_frozen():
    policy = pi05_policy(freeze_context=True, value_head=True)
    out = policy(sampled(policy))
    names = touched(policy, out.logprobs.sum() + out.values.sum())
    for part in ("gemma_expert.model", "action_in_proj", "time_mlp_in", "value_head"):
        assert any(part in name for name in names), part
    assert not any(".paligemma." in name for name in names)
    names = touched(policy := pi05_policy(freeze_vision=True), policy(sampled(policy)).logprobs.sum())
    assert any("language_model" in name for name in names)
    assert not any("vision_tower" in name or "projector" in name for name in names)


def test_insulated_context_learns_from_the_critic_alone():
    options = {"value_head": True, "critic": "shared"}
    policy, plain = pi05_policy(knowledge_insulation=True, **options).eval(), pi05_policy(**options).eval()
    plain.load_state_dict(policy.state_dict())
    batch = sampled(policy)
    out, other = policy(batch), plain(batch)
    assert_close(out.logprobs, other.logprobs)
    values = gradients(policy, out.values.sum())
    flow = gradients(policy, policy(batch).logprobs.sum())
    expected = gradients(plain, other.logprobs.sum())
    for name, slope in flow.items():
        inside = ".paligemma." in name
        assert_close(slope, torch.zeros_like(slope) if inside else expected[name], rtol=1e-4, atol=1e-5)
    assert any(slope.abs().sum() > 0 for name, slope in values.items() if ".paligemma." in name)
    for words, message in (({"freeze_context": True}, "freeze_context"), ({}, "without a gradient")):
        with pytest.raises(ValueError, match=message):
            pi05_policy(knowledge_insulation=True, **words)


@pytest.mark.parametrize("options", [{}, {"knowledge_insulation": True}])
def test_every_open_parameter_is_in_the_graph(options):
    policy = pi05_policy(FlowNoise(steps=2), value_head=True, critic="shared", **options)
    open_names = check_open_parameters(policy)
    assert not any("gemma_expert.lm_head" in name for name in open_names)


def test_checkpointed_layers_have_the_same_gradient():
    plain, saving = pi05_policy(), pi05_policy(gradient_checkpointing=True)
    batch = sampled(plain.eval())
    results = [gradients(policy.train(), policy(batch).logprobs.sum()) for policy in (plain, saving)]
    check_equal_gradients(*results)


def test_adapters_learn_alone_and_are_merged(tmp_path):
    check_adapters(pi05_policy, ".paligemma.", tmp_path)


def test_half_precision_scores_what_it_drew():
    check_half_precision(pi05_policy(dtype="bfloat16"))


def test_cloning_lowers_the_error():
    check_cloning(pi05_policy(freeze_context=True))


def test_refusals(tmp_path):
    folder = pi05(tmp_path / "made")
    config = json.loads((folder / "config.json").read_text())
    for change, message in (
        ({"type": "act"}, "not pi05"),
        ({"use_relative_actions": True}, "use_relative_actions"),
        ({"use_visual_memory": True}, "use_visual_memory"),
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message):
            pi05_policy(path=str(folder))
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    del weights["time_mlp_in.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"1 missing: time_mlp_in.bias"):
        pi05_policy(path=str(folder))


@pytest.mark.slow
def test_cloned_and_trained_from_rewards_by_words(tmp_path):
    """The folder in lerobot's format is cloned, trained for an iteration, and saved in that format."""
    small = [
        *QUIET,
        "policy=pi05",
        "policy.chain.steps=4",
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "data.num_prompts=4",
        "data.num_minibatches=1",
        "data.evaluation.count=2",
        "engine.max_rows=8",
    ]
    clone = ["recipe=flow_bc", *small, f"policy.path='{pi05_folder()}'", f"run_dir='{tmp_path}/clone'"]
    train = [
        "recipe=flow_sde_ppo",
        "policy.critic=shared",
        *small,
        "data.update_epochs=2",
        f"run_dir='{tmp_path}/train'",
    ]
    train.append(f"policy.path='{tmp_path}/clone/policy'")
    read = lambda file: {n.removeprefix("model."): v for n, v in load_file(file).items()}  # noqa: E731
    weights = [read(f"{pi05_folder()}/model.safetensors")]
    for words in (clone, train):
        CLI(to_lightning(compose(words))).fit()
        folder = tmp_path / ("clone" if words is clone else "train") / "policy"
        weights.append(read(folder / "model.safetensors"))
        assert json.loads((folder / "mmrl_policy.json").read_text())["class"] == Pi05Policy.__name__
    for before, after in itertools.pairwise(weights):
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert any("gemma_expert" in name for name in changed) and "time_mlp_in.weight" in changed
        assert not any(".paligemma." in name for name in changed)
