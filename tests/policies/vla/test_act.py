"""ACT in LeRobot's layout: it computes what lerobot computes, learns, and is saved as it came."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.objectives.imitation_chain import DenoisingLoss, LatentKL
from mmrl.policies.processor import Processor
from mmrl.policies.vla.act.policy import ACTPolicy, latent_kl
from mmrl.policies.vla.chains import FlowODE, GaussianChunk
from mmrl.policies.vla.lerobot.statistics import _scale
from mmrl.policies.vla.scale import Scale
from tests.laws.heads import demonstrated, raws, sampled
from tests.policies.vla.lerobot_original import build_original, load_processors, save_original
from tests.policies.vla.lerobot_weights import fill_by_formula
from tests.tiny_recipes import QUIET

SMALL = {
    "chunk_size": 8,
    "dim_model": 32,
    "n_heads": 4,
    "dim_feedforward": 48,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "n_vae_encoder_layers": 2,
    "latent_dim": 6,
}
MEAN = Sampling(decode="mean")


def build(**given) -> ACTPolicy:
    torch.manual_seed(0)
    settings = {} if "path" in given else {"settings": {**SMALL, **given.pop("settings", {})}}
    return ACTPolicy(**{"chain": GaussianChunk(), "chunk": 5, "image_size": 32, **settings, **given}).eval()


def original_policy(**given):
    """A policy of lerobot with two cameras of 32 x 40 pixels and random weights."""
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy as Original

    settings = {"pretrained_backbone_weights": None, "n_action_steps": 5, **SMALL, **given}
    return build_original(Original, ACTConfig, (32, 40), **settings)


def draw_statistics(rng: np.random.Generator, size: int) -> dict[str, torch.Tensor]:
    mean, std = (torch.from_numpy(rng.uniform(0.5, 2, size)).float() for _ in range(2))
    return {"mean": mean, "std": std}


VARIANTS = {
    "published": {},
    "pre_norm": {"pre_norm": True, "feedforward_activation": "gelu"},
    "no_vae": {"use_vae": False, "n_decoder_layers": 1},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_chunks_and_losses_are_those_of_lerobot(tmp_path, lerobot, name, monkeypatch):
    """For a checkpoint that lerobot saved, and for what mmrl saves of it."""
    from lerobot.policies.act.modeling_act import ACTPolicy as Original
    from lerobot.policies.act.processor_act import make_act_pre_post_processors

    original = original_policy(**VARIANTS[name], dropout=0.0)
    save_original(original, tmp_path / "lerobot", make_act_pre_post_processors, draw_statistics)
    cameras = ("front", "wrist")
    policy = build(path=str(tmp_path / "lerobot"), cameras=cameras)
    policy.save_pretrained(tmp_path / "mmrl")
    rng = np.random.default_rng(3)
    rows = [
        {"proprio": raw["proprio"], **{c: rng.integers(0, 256, (32, 40, 3), dtype=np.uint8) for c in cameras}}
        for raw in raws(3)
    ]
    observation = policy.collate([policy.encode(row) for row in rows])
    chunk = rng.uniform(0, 2, (3, 5, 3)).astype(np.float32)
    action = torch.stack([policy.encode_demonstration(row, part) for row, part in zip(rows, chunk)])
    batch = demonstrated_rows(policy, observation, action)
    found, kl = policy.eval()(batch).extra["denoising_error"].squeeze(3), policy(batch).extra["latent_kl"]
    noise = Noise(batch["row_seed"].numpy()).normal(6)
    for folder in ("lerobot", "mmrl"):
        original = Original.from_pretrained(tmp_path / folder, strict=True).eval()
        before, after = load_processors(tmp_path / folder)
        seen = [before(as_lerobot(row)) for row in rows]
        given = {k: torch.cat([s[k] for s in seen]) for k in seen[0] if k.startswith("observation.")}
        actions = original.predict_action_chunk(given)[:, :5]
        own = policy.act(observation, MEAN, Noise(range(3)))
        assert actions.std() > 0.01
        assert_close(own.action, actions, atol=1e-5, rtol=0)
        assert_close(np.stack(own.output), after(actions).numpy(), atol=1e-5, rtol=0)
        padded = torch.arange(8).expand(3, -1) >= 5
        whole = policy.action_padding.pad_last(action)
        monkeypatch.setattr(torch, "randn_like", lambda *_: noise)
        images = [given[name] for name in original.config.image_features]
        with torch.no_grad():
            predicted, (mean, log_variance) = original.model.train()(
                {**given, "observation.images": images, "action": whole, "action_is_pad": padded}
            )
        monkeypatch.undo()
        assert_close(found, predicted[:, :5] - action, atol=1e-5, rtol=0)
        if mean is not None:
            expected = (-0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp())).sum(-1)
            assert expected.min() > 0.01
            assert_close(kl, expected, atol=1e-5, rtol=1e-5)


def as_lerobot(row: dict) -> dict[str, torch.Tensor]:
    images = {
        f"observation.images.{k}": torch.from_numpy(v).movedim(-1, 0) / 255 for k, v in row.items() if v.ndim == 3
    }
    return {"observation.state": torch.from_numpy(row["proprio"]), **images}


def demonstrated_rows(policy, observation, action):
    """Rows that an expert answered with these actions [N, H, A] in the policy's units."""
    batch = demonstrated(build(), np.zeros((len(action), 5, 3), np.float32))
    seen = {f"obs.{name}": column for name, column in observation.items()}
    return batch.with_columns(action=action, **seen)


def test_lerobot_loads_a_new_policy(tmp_path, lerobot):
    from lerobot.policies.act.modeling_act import ACTPolicy as Original

    build().save_pretrained(tmp_path)
    original = Original.from_pretrained(tmp_path, strict=True)
    assert original.config.n_action_steps == 5 and original.config.image_features["observation.images.image"]


def test_numbers_are_those_that_lerobot_computed():
    """With weights by a formula: the chunk of lerobot 0.4.4."""
    policy = build()
    fill_by_formula(policy.model)
    observation = policy.collate([policy.encode(raw) for raw in raws(1)])
    with torch.no_grad():
        found, _ = policy.predict(policy.encode_context(observation).prefix, torch.zeros(1, 8, 3), torch.ones(1))
    assert_close(found[0, ::3, 0], torch.tensor(GOLDEN), atol=1e-5, rtol=0)


GOLDEN = [1.9011986, 1.8912731, 1.9269671]


def test_a_checkpoint_in_the_published_layout_has_its_names(tmp_path):
    policy = build(value_head=True)
    policy.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    shapes = {
        "model.vae_encoder.layers.1.self_attn.in_proj_weight": (96, 32),
        "model.vae_encoder_cls_embed.weight": (1, 32),
        "model.vae_encoder_robot_state_input_proj.weight": (32, 13),
        "model.vae_encoder_action_input_proj.weight": (32, 3),
        "model.vae_encoder_latent_output_proj.weight": (12, 32),
        "model.vae_encoder_pos_enc": (1, 10, 32),
        "model.backbone.conv1.weight": (64, 3, 7, 7),
        "model.backbone.layer4.1.bn2.running_var": (512,),
        "model.encoder.layers.0.linear1.weight": (48, 32),
        "model.decoder.layers.1.multihead_attn.out_proj.bias": (32,),
        "model.decoder.norm.weight": (32,),
        "model.encoder_robot_state_input_proj.weight": (32, 13),
        "model.encoder_latent_input_proj.weight": (32, 6),
        "model.encoder_img_feat_input_proj.weight": (32, 512, 1, 1),
        "model.encoder_1d_feature_pos_embed.weight": (2, 32),
        "model.decoder_pos_embed.weight": (8, 32),
        "model.action_head.weight": (3, 32),
    }
    assert {name: tuple(weights[name].shape) for name in shapes} == shapes
    assert all(name.startswith("model.") for name in weights)
    config = json.loads((tmp_path / "config.json").read_text())
    kept = {"type": "act", "chunk_size": 8, "n_action_steps": 5, "pretrained_backbone_weights": None}
    assert kept.items() <= config.items() and config["normalization_mapping"]["VISUAL"] == "MEAN_STD"


def test_a_constant_dimension_has_its_mean_and_statistics_must_be_those_of_the_mode():
    """As lerobot's inverse, x std + mean with a standard deviation of 0, whatever the network says."""
    statistics = {"mean": np.array([-1.0, 2.0]), "std": np.array([0.0, 0.5])}
    scale = _scale("MEAN_STD", statistics, "action")
    assert_close(scale.invert([[0.3, 1.0], [-7.0, -1.0]]), np.array([[-1, 2.5], [-1, 1.5]], np.float32))
    assert_close(scale.apply([-1.0, 2.5]), np.array([0.0, 1.0], np.float32))
    with pytest.raises(ValueError, match=r"action is normalised by QUANTILES, but .* lack \['q01', 'q99'\]"):
        _scale("QUANTILES", statistics, "action")
    assert _scale("QUANTILES", {}, "action") == Scale() == _scale("IDENTITY", statistics, "action")


def test_an_export_is_the_same_policy(tmp_path):
    units = Processor(action=Scale("mean_std", (0.5, 1.0, 0.0), (2.0, 0.25, 1.0)))
    policy = build(value_head=True, processor=units)
    torch.nn.init.normal_(policy.log_std.weight, std=0.2)
    policy.save_pretrained(tmp_path)
    again = build(path=str(tmp_path), value_head=True)
    first, other = sampled(policy), sampled(again)
    assert torch.equal(first["output"], other["output"])
    out, repeated = policy.train()(first), again.train()(first)
    assert torch.equal(out.logprobs, repeated.logprobs) and torch.equal(out.values, repeated.values)
    assert_close(out.logprobs, first["behavior_logprobs"], atol=1e-4, rtol=0)


def test_the_latent_has_the_divergence_of_its_formula():
    mean, variance = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 4.0]])
    expected = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, variance.sqrt()), torch.distributions.Normal(0.0, 1.0)
    )
    assert_close(latent_kl(mean, variance.log()), expected.sum(1))


def test_cloning_lowers_both_terms_and_leaves_acting_without_a_demonstration():
    policy = build().train()
    chunk = np.random.default_rng(1).uniform(-0.8, 0.8, (2, 5, 3)).astype(np.float32)
    batch = demonstrated(policy, chunk)
    optimizer = torch.optim.Adam([p for n, p in policy.named_parameters() if "backbone" not in n], lr=1e-3)
    policy.model.backbone.requires_grad_(False)
    errors, divergences = [], []
    for _ in range(40):
        optimizer.zero_grad()
        out = policy(batch)
        error, divergence = DenoisingLoss(power=1)(out, batch).mean(), LatentKL()(out, batch).mean()
        (error + 0.1 * divergence).backward()
        optimizer.step()
        errors.append(float(error.detach()))
        divergences.append(float(divergence.detach()))
    assert errors[-1] < 0.7 * errors[0] and divergences[-1] < divergences[0]
    bare = batch.with_columns(is_demo=torch.zeros_like(batch["is_demo"]))
    assert "latent_kl" not in policy(bare).extra


def test_refusals(tmp_path):
    for words, message in (
        ({"chain": FlowODE()}, "take GaussianChunk"),
        ({"chunk": 9}, "chunk_size is 8"),
        ({"settings": {"n_obs_steps": 2}}, "reads one observation"),
        ({"settings": {"feedforward_activation": "glu"}}, "relu and gelu"),
    ):
        with pytest.raises(ValueError, match=message):
            build(**words)
    build().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="action_dims is 3, but the policy is given 4"):
        build(path=str(tmp_path), action_dims=4)


def test_cloned_and_trained_from_rewards_by_words(tmp_path, capsys):
    """Cloned with its own objective, then trained as a Gaussian policy for an iteration; a line has their numbers."""
    small = [
        *(word for word in QUIET if not word.startswith(("trainer.callbacks.progress", "trainer.enable"))),
        "policy=act",
        "policy.settings={dim_model: 32, n_heads: 2, dim_feedforward: 32, n_encoder_layers: 1, latent_dim: 4}",
        "sim.image_size=32",
        "sim.chunk=4",
        "sim.max_decisions=2",
        "trainer.max_epochs=1",
        "data.num_prompts=2",
        "data.evaluation=null",
        "engine.max_rows=8",
        "data.num_minibatches=1",
    ]
    clone = ["recipe=flow_bc", *small, "objective=act", f"run_dir='{tmp_path}/clone'"]
    train = ["recipe=flow_sde_ppo", "policy.critic=shared", *small, "policy.freeze_vision=true", "optimizer.lr=3e-4"]
    train += [f"policy.path='{tmp_path}/clone/policy'", f"run_dir='{tmp_path}/train'", "data.update_epochs=2"]
    weights, numbers, metrics = [], [], []
    for words in (clone, train):
        cli = CLI(to_lightning(compose(words)))
        cli.fit()
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("iteration "))
        numbers.append({name: text for name, _, text in (part.rpartition(" ") for part in line.split(", ")[:-1])})
        metrics.append({name: float(value) for name, value in cli.trainer.callback_metrics.items()})
        folder = tmp_path / ("clone" if words is clone else "train") / "policy"
        weights.append(load_file(folder / "model.safetensors"))
        assert json.loads((folder / "mmrl_policy.json").read_text())["class"] == ACTPolicy.__name__
    # cloning: the error of the chunk and the divergence of the latent; no return: no episode was played
    terms = {"iteration 0/0: imitation": "train/imitation", "latent_kl": "train/latent_kl"}
    assert numbers[0] == {short: f"{metrics[0][name]:.3g}" for short, name in terms.items()}
    assert list(numbers[1]) == ["iteration 0/0: reward", "return", "length", "kl", "clip_fraction"]
    assert numbers[1]["kl"] == f"{metrics[1]['train/policy/kl']:.3g}"  # of the policy, not of the latent
    changed = {name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])}
    assert any(".decoder." in name for name in changed)
    # acting has no demonstration, and RL with freeze_vision leaves the image encoder as it is
    assert not any("vae_encoder" in name or ".backbone." in name for name in changed)
    again = build(path=str(folder), chunk=4)
    assert all(torch.equal(value, weights[1][f"model.{name}"]) for name, value in again.model.state_dict().items())
