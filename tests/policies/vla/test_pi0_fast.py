"""pi0-FAST in lerobot's format: it computes what lerobot computes, learns from tokens, and is saved as it came."""

import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise
from mmrl.core.types import Completion, Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.policy import ClippedSurrogate, PolicyGradient
from mmrl.policies.vla.pi0_fast.decoding import decode_row
from mmrl.policies.vla.pi0_fast.policy import Pi0FastPolicy
from mmrl.policies.vla.pi0_fast.sampler import NOTHING, avoid_length, take_back
from mmrl.rollouts.env.episodic import mask_unplayed
from tests.laws.heads import pi0_fast_folder, pi0_fast_policy, raws, sampled
from tests.policies.vla.checkpoints.pi_checkpoints import pi0_fast, smooth_chunks
from tests.policies.vla.flow_vla_checks import gradients, touched
from tests.policies.vla.lerobot_environment import make, needs_lerobot, run
from tests.tiny_recipes import QUIET


def chunks(count: int, seed: int = 0) -> list[np.ndarray]:
    """Smooth chunks of the 5 control steps that the simulator takes."""
    return smooth_chunks(count, 5, 3, seed)


def demonstrated(policy, given):
    """Rows that an expert answered with chunks, of different numbers of tokens."""
    from mmrl.core.batch import Batch, pad_stack

    rows = raws(len(given))
    observation = policy.collate([policy.encode(raw) for raw in rows])
    actions = [policy.encode_demonstration(raw, chunk) for raw, chunk in zip(rows, given)]
    return Batch(
        action=pad_stack(actions),
        action_mask=pad_stack([action != NOTHING for action in actions]),
        temperature=torch.ones(len(given)),
        **{f"obs.{name}": column for name, column in observation.items()},
    )


def test_prompt_and_start():
    policy = pi0_fast_policy()
    tokenizer = policy.reading.tokenizer
    text = tokenizer.decode(policy.encode(raws(1)[0])["input_ids"])
    assert text.startswith("Task: reach the red cube, State: ") and text.endswith(";\n")
    assert tokenizer.decode(policy.start_ids) == "<bos>Action: "
    # the action tokens go down from the last id but 8, and the end is a character of the text
    assert policy.choice_ids[:2].tolist() == [571, 570] and tokenizer.decode(policy.choice_ids[-1:]) == "|"


def test_sampled_tokens_are_scored_alike_and_have_different_lengths():
    policy = pi0_fast_policy().eval()
    batch = sampled(policy, 12)
    out = policy(batch)
    assert_close(out.logprobs * batch["action_mask"], batch["behavior_logprobs"], atol=1e-5, rtol=0)
    lengths = batch["action_mask"].sum(dim=1)
    assert len(lengths.unique()) > 1 and lengths.max() == 40
    alone = policy(batch.select(torch.tensor([3])))
    assert_close(alone.logprobs[0], out.logprobs[3], atol=1e-5, rtol=0)
    assert (out.entropy >= 0).all() and out.extra["choice_logprobs"].shape[2] == policy.end + 1


@pytest.mark.parametrize("options", [{"top_k": 3}, {"temperature": 1.6}, {"temperature": 0.5, "top_p": 0.9}])
def test_truncated_and_tempered_sampling(options):
    policy = pi0_fast_policy().eval()
    batch = sampled(policy, sampling=Sampling(**options))
    out = policy(batch)
    assert_close(out.logprobs * batch["action_mask"], batch["behavior_logprobs"], atol=1e-5, rtol=0)


def test_half_precision_scores_what_it_drew():
    policy = pi0_fast_policy(dtype="bfloat16").eval()
    batch = sampled(policy)
    assert (policy(batch).logprobs * batch["action_mask"] - batch["behavior_logprobs"]).abs().max() < 0.1
    mixed = pi0_fast_policy().eval()
    with torch.autocast("cpu", torch.bfloat16):
        batch = sampled(mixed)
        out = mixed(batch)
    assert out.logprobs.dtype == torch.float32
    assert (out.logprobs * batch["action_mask"] - batch["behavior_logprobs"]).abs().max() < 0.1


def test_a_row_is_a_function_of_its_own_stream():
    policy = pi0_fast_policy().eval()
    observation = policy.collate([policy.encode(raw) for raw in raws(3)])
    together = policy.act(observation, Sampling(), Noise(range(3)))
    alone = policy.act({k: v[2:] for k, v in observation.items()}, Sampling(), Noise([2]))
    length = int(alone.action_mask.sum())
    assert torch.equal(together.action[2, :length], alone.action[0, :length])
    owner = torch.tensor([0, 0, 2])
    shared = policy.act_groups(observation, owner, Sampling(), Noise(range(3)))
    repeated = policy.act({k: v[owner] for k, v in observation.items()}, Sampling(), Noise(range(3)))
    assert torch.equal(shared.action, repeated.action)


def test_demonstrated_tokens_decode_to_the_chunk():
    policy = pi0_fast_policy()
    for chunk in chunks(5):
        ids = policy.encode_demonstration(raws(1)[0], chunk)
        assert ids[-1] == policy.end
        found = decode_row(policy.reading.fast, ids[ids != NOTHING].tolist(), 8, 3)
        assert found.failure is None and found.chunk.shape == (8, 3)
        assert np.abs(found.chunk[:5] - chunk).max() < 0.5 / 5 * 8**0.5


def test_malformed_sequences_are_counted_by_name():
    """An engine reports them; random weights hardly ever write a chunk of 24 numbers."""
    policy = pi0_fast_policy().eval()
    engine = LocalEngine()
    engine.sync(policy, 0)
    done = engine.sample([Request(raw, seed) for seed, raw in enumerate(raws(6))], Sampling(max_tokens=6))
    counts = {name: number for name, number in engine.report().items() if name.startswith("decoding/")}
    assert set(counts) <= {f"decoding/{n}" for n in ("unfinished", "too_few", "too_many", "broken")}
    assert counts["decoding/unfinished"] == sum(int(row.action[-1] != policy.end) for row in done) > 0
    assert all(np.isfinite(row.output).all() and row.output.shape == (5, 3) for row in done)


def test_no_row_has_as_many_choices_as_the_chunk_has_numbers():
    """Which rollouts would take for one choice per number; such a row gets a place that is no choice."""
    rows, lengths = torch.tensor([[5, 6, 7], [5, 6, 0]]), torch.tensor([3, 2])
    found = avoid_length(rows, lengths, 3, NOTHING)
    assert found.tolist() == [[NOTHING, 5, 6, 7], [5, 6, 0, NOTHING]]
    assert take_back(found, found[:, 0] == NOTHING).tolist() == [[5, 6, 7, NOTHING], [5, 6, 0, NOTHING]]
    policy = pi0_fast_policy(chunk=2, horizon=2).eval()  # 2 x 3 numbers
    seen = False
    for chunk in smooth_chunks(60, 2, 3):
        ids = policy.encode_demonstration(raws(1)[0], chunk)
        mask = ids != NOTHING
        seen |= not bool(mask.all())
        done = Completion({}, ids, torch.zeros(len(ids)), mask, chunk)
        mask_unplayed(done, 1)
        if int(mask.sum()) == 6:
            assert torch.equal(done.action_mask, mask)
    batch = sampled(policy, 40, sampling=Sampling(max_tokens=6))
    shifted = batch["action"][:, 0] == NOTHING
    assert seen or bool(shifted.any())
    assert shifted.any() and not batch["action_mask"][shifted, 0].any()
    out = policy(batch)
    assert_close(out.logprobs * batch["action_mask"], batch["behavior_logprobs"], atol=1e-5, rtol=0)


def test_cloning_teaches_the_tokens():
    """Next-token loss until greedy decoding writes the demonstrated chunks."""
    policy = pi0_fast_policy(freeze_vision=True).train()
    given = chunks(2)
    batch = demonstrated(policy, given)
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        loss = NegativeLogLikelihood()(policy(batch), batch).sum() / batch["action_mask"].sum()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.05
    observation = policy.eval().collate([policy.encode(raw) for raw in raws(2)])
    for decode in ("argmax", "mean"):
        action = policy.act(observation, Sampling(decode=decode), Noise(range(2)))
        assert np.abs(np.stack(action.output) - np.stack(given)).max() < 0.5 / 5 * 8**0.5 and not action.counts


def test_at_ratio_one_the_surrogate_has_the_gradient_of_reinforce():
    policy = pi0_fast_policy().eval()
    batch = sampled(policy)
    advantages = torch.linspace(-1, 1, 6)[:, None].expand(batch["action_mask"].shape)
    batch = batch.with_columns(advantages=advantages, behavior_logprobs=policy(batch).logprobs.detach())
    total = lambda term: (term(policy(batch), batch) * batch["action_mask"]).sum()  # noqa: E731
    one, other = (gradients(policy, total(term)) for term in (ClippedSurrogate(), PolicyGradient()))
    assert one.keys() == other.keys() and any(slope.abs().sum() > 0 for slope in one.values())
    for name, slope in one.items():
        assert_close(slope, other[name], rtol=1e-4, atol=1e-5)


def test_what_is_frozen_and_what_a_value_trains():
    policy = pi0_fast_policy(freeze_vision=True, value_head=True, critic="shared")
    batch = sampled(policy)
    out = policy(batch)
    names = touched(policy, out.logprobs.sum() + out.values.sum())
    assert not any("vision_tower" in name or "projector" in name for name in names)
    assert names == {name for name, p in policy.named_parameters() if p.requires_grad}
    for critic, trained in (("shared", True), ("detached", False)):
        policy = pi0_fast_policy(value_head=True, critic=critic)
        names = touched(policy, policy(sampled(policy)).values.sum())
        assert any("language_model" in name for name in names) is trained
    observation = policy.collate([policy.encode(raw) for raw in raws(3)])
    assert torch.equal(policy.predict_values(observation), policy.act(observation, Sampling(), Noise(range(3))).values)


def test_adapters_learn_alone_and_are_merged(tmp_path):
    policy = pi0_fast_policy(freeze_vision=True, lora={"r": 4})
    names = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert names and all("lora_" in name and "lm_head" not in name for name in names)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    policy.eval().save_pretrained(tmp_path)
    batch, again = sampled(policy), pi0_fast_policy(path=str(tmp_path)).eval()
    assert_close(policy(batch).logprobs, again(batch).logprobs, atol=1e-4, rtol=0)
    assert (policy(batch).logprobs - pi0_fast_policy().eval()(batch).logprobs).abs().max() > 1e-2


@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_an_export_is_the_same_policy(tmp_path, gradient_checkpointing):
    policy = pi0_fast_policy(value_head=True, horizon=6, gradient_checkpointing=gradient_checkpointing).eval()
    policy.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["type"], config["chunk_size"], config["n_action_steps"]) == ("pi0_fast", 6, 6)
    again = pi0_fast_policy(path=str(tmp_path), value_head=True).eval()
    batch = sampled(policy)
    assert torch.equal(sampled(again)["output"], batch["output"])
    assert torch.equal(policy(batch).logprobs, again(batch).logprobs)
    assert torch.equal(policy(batch).values, again(batch).values)
    weights, saved = load_file(f"{pi0_fast_folder()}/model.safetensors"), load_file(tmp_path / "model.safetensors")
    embedding = "model.paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
    assert {name.removeprefix("model.") for name in set(saved) - {embedding}} == set(weights)


def test_an_output_layer_apart_from_the_embeddings_is_kept(tmp_path):
    """As lerobot 0.6 trains and saves it."""
    pi0_fast_policy().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    name = "model.paligemma_with_expert.paligemma.lm_head.weight"
    weights = load_file(file)
    save_file(weights | {name: weights[name] * 2}, file)
    policy = pi0_fast_policy(path=str(tmp_path)).eval()
    policy.save_pretrained(tmp_path / "again")
    assert torch.equal(load_file(tmp_path / "again" / "model.safetensors")[name], weights[name] * 2)
    batch = sampled(pi0_fast_policy().eval())
    assert (policy(batch).logprobs - pi0_fast_policy().eval()(batch).logprobs).abs().max() > 0.1


@needs_lerobot
def test_it_is_lerobots_policy(tmp_path):
    """Prompt, action tokens, decoded chunk and loss, of a checkpoint that LeRobot made and of mmrl's export of it."""
    made, own = make("pi0_fast", tmp_path), tmp_path / "own"
    policy = pi0_fast_policy(path=str(made), fast=str(own / "fast")).eval()
    policy.save_pretrained(tmp_path / "saved")
    rows = [{**raw, "proprio": raw["proprio"] * 0.5} for raw in raws(3)]
    given = torch.from_numpy(policy.processor.decode(np.stack(smooth_chunks(3, 8, 3, seed=2))))
    observation = policy.collate([policy.encode(raw) for raw in rows])
    columns = {"images": torch.from_numpy(np.stack([raw["image"] for raw in rows])), "chunk": given}
    columns |= {"state": torch.from_numpy(np.stack([raw["proprio"] for raw in rows]))}
    for folder in (made, tmp_path / "saved"):
        want = run("pi0_fast", folder, own, [raw["instruction"] for raw in rows], **columns)
        length = observation["input_ids"].shape[1]
        assert torch.equal(want["tokens"][:, :length] * observation["attention_mask"], observation["input_ids"])
        normal = policy.processor.encode_action(given.numpy())
        for row, tokens, mask in zip(normal, want["action.tokens"], want["action.token_mask"], strict=True):
            ids = [
                *policy.start_ids.tolist(),
                *policy.choice_ids[[*policy.reading.fast.encode(row), policy.end]].tolist(),
            ]
            assert tokens[: len(ids)].tolist() == ids and int(mask.sum()) - len(ids) in (0, 1)  # then the end of text
        decoded = np.stack([policy.reading.fast.decode(policy.reading.fast.encode(row), 8, 3).chunk for row in normal])
        assert_close(torch.from_numpy(decoded), want["actions"], atol=1e-6, rtol=0)
        assert_close(torch.from_numpy(policy.processor.decode(decoded)), want["output"], atol=1e-5, rtol=0)
        tokens, inside = want["action.tokens"], want["action.token_mask"].bool()
        with torch.no_grad():
            mask, pairs, _ = policy._read(observation)
            hidden, _ = policy.network.run_tokens(tokens[:, :-1], mask, pairs)
            logits = policy.network.logits(hidden, torch.arange(600))
        losses = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(3, -1)
        loss = (losses * inside[:, 1:]).sum() / inside[:, 1:].sum()
        assert float(loss) > 1
        assert_close(loss, want["loss"], atol=1e-5, rtol=1e-5)


def test_refusals(tmp_path):
    folder = pi0_fast(tmp_path / "made")
    for words, message in (
        ({"chunk": 9}, r"chunk=9.*n_action_steps \(policy.horizon\) is 8"),
        ({"fast": str(tmp_path)}, "no tokenizer.json"),
    ):
        with pytest.raises(ValueError, match=message):
            pi0_fast_policy(path=str(folder), **words)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"fast_skip_tokens": 570}))
    with pytest.raises(ValueError, match="do not fit into a text vocabulary of 580"):
        pi0_fast_policy(path=str(folder))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["demo_vla", "ppo_vla"])
def test_cloned_and_trained_from_rewards_by_words(tmp_path, recipe):
    """The folder in lerobot's format is cloned, trained by GRPO or PPO for an iteration, and saved in that format."""
    small = [
        *QUIET,
        "policy=pi0_fast",
        "trainer.max_epochs=1",
        "trainer.check_val_every_n_epoch=1",
        "data.num_prompts=2",
        "data.evaluation.count=2",
        "data.sampling.max_tokens=8",
        "engine.max_rows=8",
    ]
    clone = ["recipe=bc", "objective=imitation", *small, f"policy.path='{pi0_fast_folder()}'"]
    train = [f"recipe={recipe}", *small, f"policy.path='{tmp_path}/clone/policy'"]
    train += ["trainer.callbacks.warm_start.stages=null", "data.num_minibatches=1"]
    train += (
        ["policy.critic=detached"]
        if recipe == "ppo_vla"
        else [
            "data.group_size=4",
            "+data.reward.weights.tip_distance_m=-1.0",  # random weights never succeed
        ]
    )
    read = lambda file: {n.removeprefix("model."): v for n, v in load_file(file).items()}  # noqa: E731
    weights = [read(f"{pi0_fast_folder()}/model.safetensors")]
    for name, words in (("clone", clone), ("train", train)):
        CLI(to_lightning(compose([*words, f"run_dir='{tmp_path}/{name}'"]))).fit()
        folder = tmp_path / name / "policy"
        weights.append(read(folder / "model.safetensors"))
        assert json.loads((folder / "mmrl_policy.json").read_text())["class"] == Pi0FastPolicy.__name__
    for before, after in itertools.pairwise(weights):
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert any("language_model" in name for name in changed) and not any("vision_tower" in n for n in changed)
