"""Diffusion Policy in LeRobot's layout: it computes what lerobot computes, learns, and is saved as it came."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.objectives.imitation_chain import DenoisingLoss
from mmrl.policies.processor import Processor
from mmrl.policies.vla.chains import DDIM, DDPM, FlowODE
from mmrl.policies.vla.diffusion_policy.policy import DiffusionPolicy
from mmrl.policies.vla.scale import Scale
from tests.laws.heads import demonstrated, raws, sampled
from tests.policies.vla.lerobot_original import build_original, load_processors, save_original
from tests.policies.vla.lerobot_weights import fill_by_formula
from tests.tiny_recipes import QUIET

SMALL = {"down_dims": (16, 32), "n_groups": 4, "diffusion_step_embed_dim": 8, "spatial_softmax_num_keypoints": 4}
LEROBOT = {
    "pretrained_backbone_weights": None,
    "use_group_norm": True,
    "use_separate_rgb_encoder_per_camera": False,
    "horizon": 8,
    "n_action_steps": 5,
}
MEAN = Sampling(decode="mean")


def build(chain=None, **given) -> DiffusionPolicy:
    torch.manual_seed(0)
    settings = {} if "path" in given else {"settings": {**SMALL, "n_obs_steps": 1, **given.pop("settings", {})}}
    return DiffusionPolicy(**{"chain": chain or DDIM(), "chunk": 5, "image_size": 32, **settings, **given}).eval()


def history(count: int, frames: int, cameras=("image",)) -> list[dict]:
    """Observations of `frames` steps each, the oldest first."""
    steps = raws(count * frames)
    return [
        {
            **{name: np.stack([np.roll(s["image"], k, 0) for s in part]) for k, name in enumerate(cameras)},
            "proprio": np.stack([s["proprio"] for s in part]),
        }
        for part in (steps[i * frames : (i + 1) * frames] for i in range(count))
    ]


def final_states(policy, observation) -> torch.Tensor:
    """The states [N, S, A] in which the chains end."""
    action = policy.act(observation, MEAN, Noise(range(len(observation["proprio"]))))
    chunk = action.action[:, -policy.chunk :]
    if policy.action_padding is None:
        return chunk
    return policy.action_padding.join(chunk, action.extra["padding_actions"][:, -policy.chunk :])


def original_policy(**given):
    """A policy of lerobot with two cameras, random weights and processors."""
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy as Original

    return build_original(Original, DiffusionConfig, (32, 32), **{**LEROBOT, **SMALL, **given})


def draw_statistics(rng: np.random.Generator, size: int) -> dict[str, torch.Tensor]:
    low = torch.from_numpy(rng.uniform(-2, -1, size)).float()
    return {"min": low, "max": low + torch.from_numpy(rng.uniform(1, 3, size)).float()}


VARIANTS = {
    "two_frames": {
        "n_obs_steps": 2,
        "noise_scheduler_type": "DDIM",
        "num_inference_steps": 5,
        "num_train_timesteps": 20,
    },
    "own_encoders": {
        "n_obs_steps": 1,
        "use_separate_rgb_encoder_per_camera": True,
        "use_film_scale_modulation": False,
        "crop_shape": (28, 24),
        "noise_scheduler_type": "DDIM",
        "num_inference_steps": 10,
        "num_train_timesteps": 10,
        "clip_sample": False,
    },
    "batch_norm": {
        "n_obs_steps": 2,
        "use_group_norm": False,
        "resize_shape": (80, 96),
        "crop_ratio": 0.8,
        "noise_scheduler_type": "DDIM",
        "num_inference_steps": 4,
        "num_train_timesteps": 20,
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_chunks_and_noise_are_those_of_lerobot(tmp_path, lerobot, name):
    """For a checkpoint that lerobot saved, and for what mmrl saves of it."""
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy as Original
    from lerobot.policies.diffusion.processor_diffusion import make_diffusion_pre_post_processors

    given = VARIANTS[name]
    save_original(original_policy(**given), tmp_path / "lerobot", make_diffusion_pre_post_processors, draw_statistics)
    bound = 1.0 if given.get("clip_sample", True) else None
    levels = given["num_train_timesteps"]
    chain = DDIM(given["num_inference_steps"], levels, bound=bound, spacing="leading", refit_epsilon=False)
    cameras = ("front", "wrist")
    policy = build(chain, path=str(tmp_path / "lerobot"), cameras=cameras)
    policy.save_pretrained(tmp_path / "mmrl")
    rows = history(3, given["n_obs_steps"], cameras)
    rows = rows if given["n_obs_steps"] > 1 else [{k: v[0] for k, v in row.items()} for row in rows]
    observation = policy.collate([policy.encode(row) for row in rows])
    noise = Noise(range(3)).normal(8, 3)
    for folder in ("lerobot", "mmrl"):
        original = Original.from_pretrained(tmp_path / folder, strict=True).eval()
        before, after = load_processors(tmp_path / folder)
        seen = [_as_lerobot(before, row, given["n_obs_steps"]) for row in rows]
        batch = {k: torch.cat([s[k] for s in seen]) for k in seen[0]}
        images = torch.stack([batch.pop(f"observation.images.{n}") for n in cameras], dim=2)
        actions = original.diffusion.generate_actions({**batch, "observation.images": images}, noise=noise)
        assert actions.shape == (3, 5, 3)
        own = policy.act(observation, MEAN, Noise(range(3)))
        assert_close(own.action[:, -5:], actions, atol=1e-5, rtol=1e-5)
        assert_close(np.stack(own.output), after(actions.detach()).numpy(), atol=1e-5, rtol=1e-5)
        features = original.diffusion._prepare_global_conditioning({**batch, "observation.images": images})
        level = torch.tensor([0, 3, 7])
        expected = original.diffusion.unet(noise, level, global_cond=features)
        with torch.no_grad():
            found, _ = policy.predict(policy.encode_context(observation).prefix, noise, (level + 1) / levels)
        assert expected.abs().mean() > 0.01
        assert_close(found, expected, atol=1e-5, rtol=0)


def _as_lerobot(before, raw: dict, frames: int) -> dict[str, torch.Tensor]:
    """One observation [1, frames, ...] through lerobot's pre-processor."""
    given = {k: torch.from_numpy(v if frames > 1 else v[None]) for k, v in raw.items() if isinstance(v, np.ndarray)}
    seen = {f"observation.images.{k}": v.movedim(-1, 1).float() / 255 for k, v in given.items() if k != "proprio"}
    steps = [
        before({"observation.state": given["proprio"][i], **{k: v[i] for k, v in seen.items()}}) for i in range(frames)
    ]
    names = [k for k in steps[0] if k.startswith("observation.")]
    return {k: torch.stack([step[k] for step in steps], dim=1) for k in names}


def test_ddpm_is_that_of_lerobot(tmp_path, lerobot, monkeypatch):
    """Every transition with the same noise; the last one has none."""
    from diffusers.schedulers import scheduling_ddpm
    from lerobot.policies.diffusion.processor_diffusion import make_diffusion_pre_post_processors

    original = original_policy(n_obs_steps=1, num_train_timesteps=6, clip_sample_range=0.5)
    save_original(original, tmp_path, make_diffusion_pre_post_processors, draw_statistics)
    policy = build(DDPM(6, bound=0.5, min_std=1e-8), path=str(tmp_path), cameras=("front", "wrist"), chunk=8)
    observation = policy.collate(
        [policy.encode({**raw, "front": raw["image"], "wrist": raw["image"]}) for raw in raws(3)]
    )
    noise = Noise(range(3))
    start, fresh = noise.normal(8, 3), iter(noise.normal(6, 8, 3).unbind(dim=1))
    monkeypatch.setattr(scheduling_ddpm, "randn_tensor", lambda *_, **__: next(fresh))
    features = policy.encode_context(observation).prefix[0].detach()
    expected = original.diffusion.conditional_sample(3, features, noise=start)
    found = policy.act(observation, Sampling(), Noise(range(3))).action[:, -8:]
    assert_close(found, expected, atol=1e-5, rtol=0)


def test_lerobot_loads_a_new_policy(tmp_path, lerobot):
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy as Original

    build(settings={"use_separate_rgb_encoder_per_camera": True}).save_pretrained(tmp_path)
    original = Original.from_pretrained(tmp_path, strict=True)
    assert original.config.n_action_steps == 5 and original.diffusion.num_inference_steps == 5


def test_numbers_are_those_that_lerobot_computed():
    """With weights by a formula: the sampled chunk of lerobot 0.4.4."""
    policy = build(DDIM(4, 20, spacing="leading", refit_epsilon=False), settings={"n_obs_steps": 2})
    fill_by_formula(policy.diffusion)
    observation = policy.collate([policy.encode(row) for row in history(1, 2)])
    x = torch.linspace(-1, 1, 24).reshape(1, 8, 3)
    with torch.no_grad():
        found, _ = policy.predict(policy.encode_context(observation).prefix, x, torch.tensor([0.4]))
    assert_close(found[0, ::3, 0], torch.tensor(GOLDEN), atol=1e-5, rtol=0)


GOLDEN = [-0.2985722, 3.8318434, 2.3519084]


def test_a_checkpoint_in_the_published_layout_has_its_names(tmp_path):
    policy = build(value_head=True, settings={"n_obs_steps": 2}, chunk=5)
    policy.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    width = 8 + 2 * (13 + 2 * 4)
    shapes = {
        "diffusion.rgb_encoder.backbone.0.weight": (64, 3, 7, 7),
        "diffusion.rgb_encoder.backbone.1.weight": (64,),
        "diffusion.rgb_encoder.backbone.5.0.downsample.0.weight": (128, 64, 1, 1),
        "diffusion.rgb_encoder.pool.nets.weight": (4, 512, 1, 1),
        "diffusion.rgb_encoder.pool.pos_grid": (1, 2),
        "diffusion.rgb_encoder.out.weight": (8, 8),
        "diffusion.unet.diffusion_step_encoder.1.weight": (32, 8),
        "diffusion.unet.down_modules.0.0.conv1.block.0.weight": (16, 3, 5),
        "diffusion.unet.down_modules.0.0.cond_encoder.1.weight": (32, width),
        "diffusion.unet.down_modules.0.2.weight": (16, 16, 3),
        "diffusion.unet.down_modules.1.0.residual_conv.weight": (32, 16, 1),
        "diffusion.unet.mid_modules.1.conv2.block.1.weight": (32,),
        "diffusion.unet.up_modules.0.0.conv1.block.0.weight": (16, 64, 5),
        "diffusion.unet.up_modules.0.2.weight": (16, 16, 4),
        "diffusion.unet.final_conv.1.weight": (3, 16, 1),
    }
    assert {name: tuple(weights[name].shape) for name in shapes} == shapes
    assert not any("value_head" in name for name in weights)
    config = json.loads((tmp_path / "config.json").read_text())
    kept = {"type": "diffusion", "horizon": 8, "n_action_steps": 5, "noise_scheduler_type": "DDIM"}
    assert kept.items() <= config.items() and config["num_inference_steps"] == 5
    assert config["input_features"]["observation.images.image"] == {"type": "VISUAL", "shape": [3, 32, 32]}


def test_scoring_again_gives_what_was_sampled():
    """With padding before and after the chunk, and with stored features of a frozen encoder."""
    for freeze in (False, True):
        policy = build(settings={"n_obs_steps": 2}, freeze_vision=freeze, value_head=True)
        rows = history(4, 2)
        observation = policy.collate([policy.encode(row) for row in rows])
        action = policy.act(observation, Sampling(), Noise(range(4)))
        assert ("visual" in action.cached_features) == freeze
        seen = {"proprio": observation["proprio"], **(action.cached_features or observation)}
        batch = Batch(
            action=action.action,
            action_mask=action.action_mask,
            temperature=torch.ones(4),
            **action.extra,
            **{f"obs.{name}": column for name, column in seen.items()},
        )
        out = policy.train()(batch)
        assert_close(out.logprobs, action.behavior_logprobs, atol=1e-4, rtol=0)
        assert_close(out.values, action.values, atol=1e-5, rtol=0)
        out.logprobs.sum().backward()
        slopes = {name for name, weight in policy.named_parameters() if weight.grad is not None}
        assert any("unet" in name for name in slopes) and any("rgb_encoder" in name for name in slopes) != freeze


def test_an_export_is_the_same_policy(tmp_path):
    units = Processor(
        vectors={"proprio": Scale("mean_std", (0.25,) * 13, (2.0,) * 13)},
        action=Scale("min_max", (0.5, 1.0, 0.0), (2.0, 0.25, 1.0), (True, True, False)),
    )
    policy = build(value_head=True, processor=units)
    policy.save_pretrained(tmp_path)
    again = build(path=str(tmp_path), value_head=True)
    first, other = sampled(policy), sampled(again)
    assert torch.equal(first["output"], other["output"])
    assert torch.equal(policy(first).values, again(first).values)
    (tmp_path / "mmrl_policy.json").unlink()  # as lerobot would have saved it
    bare = build(path=str(tmp_path), value_head=True)
    assert_close(sampled(bare)["output"], first["output"], atol=1e-5, rtol=0)


def test_cloning_lowers_the_error():
    """With stored features of a frozen encoder."""
    policy = build(settings={"down_dims": [32, 64]}, timesteps_per_sample=8, chunk=8, freeze_vision=True).train()
    chunk = np.random.default_rng(1).uniform(-0.8, 0.8, (1, 8, 3)).astype(np.float32).repeat(2, axis=0)
    batch = demonstrated(policy, chunk)
    batch = batch.with_columns(**{"obs.visual": policy.cache_features({"images": batch["obs.images"]})["visual"]})
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=5e-3)
    errors = []
    for step in range(80):
        batch = batch.with_columns(row_seed=batch["row_seed"] + 1000 * step)
        optimizer.zero_grad()
        loss = DenoisingLoss()(policy(batch), batch).mean()
        loss.backward()
        optimizer.step()
        errors.append(float(loss.detach()))
    assert np.mean(errors[-10:]) < 0.5 * np.mean(errors[:10])


def test_refusals(tmp_path):
    policy = build(settings={"n_obs_steps": 2})
    for raw, message in (
        (raws(1)[0], "sim=chunked sim.history=2"),
        (history(1, 3)[0], "reads 2 observations"),
        ({"proprio": history(1, 2)[0]["proprio"]}, "needs observation"),
    ):
        with pytest.raises(ValueError, match=message):
            policy.encode(raw)
    with pytest.raises(ValueError, match=r"policy\.image_size"):
        build().encode({**raws(1)[0], "image": np.zeros((16, 16, 3), np.uint8)})
    with pytest.raises(ValueError, match="take DDIM or DDPM"):
        build(FlowODE())
    for settings, message in (
        ({"horizon": 6}, "multiple of 4"),
        ({"horizon": 4}, "at most 4"),
        ({"beta_schedule": "linear"}, "squaredcos_cap_v2"),
        ({"nope": 1}, r"unknown \['nope'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            build(settings=settings)
    build().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"policy.chain.levels=20"):
        build(DDIM(4, 8), path=str(tmp_path))
    with pytest.raises(ValueError, match="proprio_dims is 13, but the policy is given 9"):
        build(path=str(tmp_path), proprio_dims=9)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"type": "act"}))
    with pytest.raises(ValueError, match="not diffusion"):
        build(path=str(tmp_path))


def test_cloned_and_trained_from_rewards_by_words(tmp_path):
    """With two observations and half of each chunk played: cloned, trained for an iteration, saved and loaded."""
    small = [
        *QUIET,
        "policy=diffusion_policy",
        "policy.settings={n_obs_steps: 2, down_dims: [16, 32], n_groups: 4, spatial_softmax_num_keypoints: 4}",
        "policy.chain={steps: 2, levels: 4}",
        "policy.image_size=32",
        "sim=chunked",
        "sim.chunk=7",
        "sim.execute=4",
        "sim.history=2",
        "sim.sim={level: easy, image_size: 32, max_decisions: 2}",
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "data.num_prompts=2",
        "data.evaluation=null",
        "engine.max_rows=8",
        "data.num_minibatches=1",
    ]
    clone = ["recipe=flow_bc", *small, f"run_dir='{tmp_path}/clone'"]
    train = ["recipe=dppo", *small, "policy.freeze_vision=true", "optimizer.lr=3e-4", "data.update_epochs=2"]
    train += [f"policy.path='{tmp_path}/clone/policy'", f"run_dir='{tmp_path}/train'"]
    weights = []
    for words in (clone, train):
        CLI(to_lightning(compose(words))).fit()
        folder = tmp_path / ("clone" if words is clone else "train") / "policy"
        weights.append(load_file(folder / "model.safetensors"))
    changed = {name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])}
    assert changed and all("unet" in name for name in changed)  # the encoder is frozen
    again = DiffusionPolicy(DDIM(2, 4), path=str(folder), chunk=7, image_size=32)
    assert all(torch.equal(value, weights[1][name]) for name, value in again.state_dict().items())
