"""TextPolicy: what it samples is what it scores, and both are what transformers says."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

from mmrl.core.types import Prompt, Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.entropy.lp_reg import MinPProbability
from mmrl.methods.entropy.siren import NucleusEntropy
from mmrl.policies.text import cache
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.statistics import ChoiceLogprobs
from tests.policies.text.oracle import (
    TINY,
    batch_of,
    completions,
    decided,
    largest_log_ratio,
    plain_generate,
    plain_logits,
)

QUESTIONS = ("1+1=", "23+4=", "what is five hundred and twelve plus one?", "9", "100+200=", "a b c d e f g", "0-0=")
PROMPTS = [Prompt(f"text/train/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(QUESTIONS)]
STOPS = tuple("abcdefgh0123")  # about a tenth of the alphabet: rows finish at different times
SAMPLINGS = {
    "plain": Sampling(max_tokens=40, stop=STOPS),
    "hot": Sampling(temperature=1.7, max_tokens=40, stop=STOPS),
    "cold": Sampling(temperature=0.6, max_tokens=40, stop=STOPS),
    "top_p": Sampling(top_p=0.8, max_tokens=40, stop=STOPS),
    "top_k": Sampling(top_k=5, max_tokens=40, stop=STOPS),
    "min_p": Sampling(min_p=0.2, max_tokens=40, stop=STOPS),
    "all": Sampling(temperature=0.8, top_k=20, top_p=0.9, min_p=0.05, max_tokens=40, stop=STOPS),
}
samplings = pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


# ---------------------------------------------------------------- the ratio starts at one


@samplings
def test_forward_gives_the_log_probs_of_act(policy, sampling):
    done = completions(policy, PROMPTS * 3, sampling)
    lengths = {len(c.action) for c in done}
    assert len(lengths) > 3 or sampling.truncated  # rows left the cache on the way
    assert all(c.action_mask.all() and c.policy_version == 3 for c in done)
    assert largest_log_ratio(policy, PROMPTS * 3, done) < 1e-4


@samplings
def test_act_gives_the_log_probs_of_a_plain_forward_pass(policy, sampling):
    """Oracle: softmax of transformers' logits on one row without padding, renormalised over the ids that are kept."""
    for completion in completions(policy, PROMPTS, sampling):
        probabilities = (plain_logits(policy, completion) / sampling.temperature).softmax(-1)
        kept = torch.ones_like(probabilities, dtype=torch.bool)
        kept &= probabilities >= sampling.min_p * probabilities.amax(-1, keepdim=True)
        if sampling.top_k:
            kept &= probabilities >= probabilities.topk(sampling.top_k).values[:, -1:]
        if sampling.top_p < 1:
            # nucleus: an id stays while the more likely ones together have less than top_p, after top_k
            masses = torch.where(kept, probabilities, 0)
            masses = masses / masses.sum(-1, keepdim=True)
            above = torch.stack(
                [torch.where(masses > masses[:, [v]], masses, 0).sum(-1) for v in range(len(masses[0]))], 1
            )
            kept &= above < sampling.top_p
        expected = torch.where(kept, probabilities, 0)
        expected = (expected / expected.sum(-1, keepdim=True)).gather(1, completion.action[:, None])[:, 0].log()
        assert_close(completion.behavior_logprobs, expected, atol=1e-4, rtol=0)


def test_a_wrong_position_or_mask_would_be_seen(policy):
    """The oracle has teeth: the same rows scored with unmasked padding differ by far more than the tolerance."""
    done = completions(policy, PROMPTS, SAMPLINGS["plain"])
    batch = batch_of(policy, PROMPTS, done)
    batch["obs.attention_mask"] = torch.ones_like(batch["obs.attention_mask"])
    wrong = policy(batch).logprobs - batch["behavior_logprobs"]
    assert wrong[batch["action_mask"]].abs().max() > 0.1


def test_greedy_decoding_is_that_of_transformers(policy):
    done = completions(policy, PROMPTS, Sampling(decode="argmax", max_tokens=24))
    for completion in done:
        assert completion.action.tolist() == plain_generate(policy, completion.observation, 24)


def test_dropout_is_off_while_acting_and_the_mode_comes_back():
    torch.manual_seed(0)
    policy = decided(TextPolicy(config={**TINY, "attention_dropout": 0.5})).train()
    done = completions(policy, PROMPTS, SAMPLINGS["plain"])
    assert policy.training
    assert largest_log_ratio(policy.eval(), PROMPTS, done) < 1e-4


# ---------------------------------------------------------------- draws belong to requests


@pytest.mark.parametrize("name", ["plain", "all"])
def test_a_draw_does_not_depend_on_the_batch_around_it(policy, name):
    together = completions(policy, PROMPTS, SAMPLINGS[name])
    alone = [completions(policy, [prompt], SAMPLINGS[name])[0] for prompt in PROMPTS]
    pairs = completions(policy, PROMPTS, SAMPLINGS[name], max_rows=2)
    backwards = completions(policy, PROMPTS[::-1], SAMPLINGS[name])[::-1]
    for other in (alone, pairs, backwards):
        assert [c.action.tolist() for c in other] == [c.action.tolist() for c in together]
        assert [c.output for c in other] == [c.output for c in together]
        assert_close([c.behavior_logprobs for c in other], [c.behavior_logprobs for c in together], atol=1e-4, rtol=0)


@pytest.mark.parametrize("shared_from", [1, 1000], ids=["held once", "copied"])
@pytest.mark.parametrize("name", ["plain", "all"])
def test_completions_of_one_prompt_are_those_that_read_it_alone(policy, name, shared_from, monkeypatch):
    """The prompt is read once for its completions; in groups of any size, cut by the batch anywhere."""
    monkeypatch.setattr(cache, "SHARED_FROM", shared_from)
    prompts = [PROMPTS[i] for i in (2, 0, 2, 2, 1, 0, 3, 2, 2)]
    engine = LocalEngine(max_rows=4)
    engine.sync(policy, 3)
    requests = [Request(one.observation, seed, prompt_id=one.key) for seed, one in enumerate(prompts)]
    read = []
    hook = policy.model.register_forward_pre_hook(
        lambda _, __, inputs: read.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    together = engine.sample(requests, SAMPLINGS[name])
    hook.remove()
    assert sum(rows for rows, length in read if length > 1) == 5  # 4 prompts, the longest of which is in two batches
    for request, completion in zip(requests, together):
        (alone,) = engine.sample([request], SAMPLINGS[name])
        assert alone.action.tolist() == completion.action.tolist()
        assert_close(alone.behavior_logprobs, completion.behavior_logprobs, atol=1e-4, rtol=0)
    assert together[0].observation is together[2].observation


def test_the_seed_decides(policy):
    first, again, other = (completions(policy, PROMPTS, SAMPLINGS["plain"], seed) for seed in (0, 0, 1))
    assert [c.action.tolist() for c in first] == [c.action.tolist() for c in again]
    assert [c.action.tolist() for c in first] != [c.action.tolist() for c in other]
    assert all(torch.equal(a.behavior_logprobs, b.behavior_logprobs) for a, b in zip(first, again))


# ---------------------------------------------------------------- where completions end


def test_a_completion_ends_at_a_stop_string_the_end_token_or_the_limit(policy):
    done = completions(policy, PROMPTS * 4, SAMPLINGS["plain"])
    eos = policy.tokenizer.eos_token_id
    ends = set()
    for completion in done:
        last = policy.tokenizer.decode(completion.action[-1:])
        before = policy.tokenizer.decode(completion.action[:-1], skip_special_tokens=True)
        assert not any(stop in before for stop in STOPS)
        assert eos not in completion.action[:-1].tolist()
        by_itself = last in STOPS or completion.action[-1] == eos
        assert completion.ended == ("done" if by_itself else "length")
        assert by_itself or len(completion.action) == 40
        ends.add(completion.ended)
    assert ends == {"done", "length"} or len({len(c.action) for c in done}) > 3


def test_a_prompt_with_an_image_is_refused(policy):
    with pytest.raises(ValueError, match=r"cannot see.*policy=tiny_vlm"):
        policy.encode({"messages": PROMPTS[0].messages, "images": (torch.zeros(4, 4, 3).byte().numpy(),)})


def test_decode_mean_is_refused(policy):
    with pytest.raises(ValueError, match="tokens have no order"):
        completions(policy, PROMPTS, Sampling(decode="mean"))


# ---------------------------------------------------------------- the batch


def test_padding_changes_nothing(policy):
    """Rows scored one by one, and scored in a batch that pads prompts on the left and choices on the right."""
    done = completions(policy, PROMPTS, SAMPLINGS["plain"])
    whole = batch_of(policy, PROMPTS, done)
    out = policy(whole)
    for i, (prompt, completion) in enumerate(zip(PROMPTS, done)):
        alone = policy(batch_of(policy, [prompt], [completion]))
        n = len(completion.action)
        assert_close(out.logprobs[i, :n], alone.logprobs[0], atol=1e-4, rtol=0)
        assert_close(out.entropy[i, :n], alone.entropy[0], atol=1e-4, rtol=0)


def test_imitation_is_the_inverse_of_decoding(policy):
    choices = policy.encode_demonstration(PROMPTS[0].observation, "42 apples")
    assert policy.tokenizer.decode(choices, skip_special_tokens=True) == "42 apples"
    assert choices[-1] == policy.tokenizer.eos_token_id


# ---------------------------------------------------------------- heads, adapters, exports


def test_an_export_loads_with_transformers_alone(policy, tmp_path):
    policy.save_pretrained(tmp_path)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.apply_chat_template(PROMPTS[2].messages, add_generation_prompt=True, return_tensors="pt")[
        "input_ids"
    ]
    assert ids[0].tolist() == policy.encode(PROMPTS[2].observation)["input_ids"].tolist()
    with torch.no_grad():
        assert torch.equal(model.eval()(ids).logits, policy.model(ids).logits)


def test_what_was_exported_is_the_same_policy(tmp_path):
    torch.manual_seed(1)
    policy = decided(TextPolicy(config=TINY, value_head=True))
    torch.nn.init.normal_(policy.value_head.weight)
    done = completions(policy, PROMPTS, SAMPLINGS["plain"])
    policy.save_pretrained(tmp_path)
    again = TextPolicy(path=str(tmp_path), value_head=True)
    mine, theirs = (p.eval()(batch_of(p, PROMPTS, done)) for p in (policy, again))
    assert_close(mine.logprobs, theirs.logprobs, atol=0, rtol=0)
    assert_close(mine.values, theirs.values, atol=0, rtol=0)
    assert mine.values.abs().max() > 0 and mine.values.shape == mine.logprobs.shape


def test_a_value_is_that_of_the_context_before_its_token(policy):
    """v_t may not see token t: other tokens from t on leave v_t as it is."""
    torch.manual_seed(2)
    valued = decided(TextPolicy(config=TINY, value_head=True)).eval()
    torch.nn.init.normal_(valued.value_head.weight)
    batch = batch_of(valued, PROMPTS, completions(valued, PROMPTS, Sampling(max_tokens=6)))
    changed = batch.with_columns(action=batch["action"].clone())
    changed["action"][:, 3:] = 20
    before, after = valued(batch).values, valued(changed).values
    assert_close(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().max() > 1e-3


def test_low_rank_adapters_are_all_that_learns_and_the_export_is_merged(tmp_path):
    torch.manual_seed(3)
    policy = decided(TextPolicy(config=TINY, lora={"r": 4})).eval()
    trained = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    done = completions(policy, PROMPTS, SAMPLINGS["plain"])
    assert largest_log_ratio(policy, PROMPTS, done) < 1e-4
    before = {name: p.clone() for name, p in policy.named_parameters()}
    policy.save_pretrained(tmp_path)
    assert all(torch.equal(p, before[name]) for name, p in policy.named_parameters())  # exporting changes nothing
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = policy.encode(PROMPTS[2].observation)["input_ids"][None]
    with torch.no_grad():
        assert_close(plain(ids).logits, policy.model(ids).logits, atol=1e-4, rtol=1e-4)
        assert (plain(ids).logits - policy.model.get_base_model()(ids).logits).abs().max() < 1e-3
        with policy.model.disable_adapter():
            assert (plain(ids).logits - policy.model(ids).logits).abs().max() > 0.1


def test_empty_lora_options_mean_adapters_everywhere():
    policy = TextPolicy(config=TINY, lora={})
    names = [name for name, p in policy.named_parameters() if p.requires_grad]
    assert {"q_proj", "o_proj", "down_proj"} <= {part for name in names for part in name.split(".")}


def test_a_folder_without_a_checkpoint_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"policy\.path='.*' cannot be loaded"):
        TextPolicy(path=str(tmp_path))


def test_statistics_are_those_of_every_choice():
    """The nucleus that holds everything has the entropy; a smaller one has less, and a gradient."""
    torch.manual_seed(0)
    parts = {"all": NucleusEntropy(1.0), "some": NucleusEntropy(0.5), "choice_logprobs": ChoiceLogprobs()}
    whole = TextPolicy(config=TINY, statistics=parts)
    assert TextPolicy.predicts({"statistics": {name: {} for name in parts}}) == set(parts)
    batch = batch_of(whole, PROMPTS[:3], completions(whole, PROMPTS[:3], Sampling(max_tokens=6)))
    out = whole(batch)
    assert_close(out.extra["all"], out.entropy)
    assert (out.extra["some"] <= out.extra["all"]).all() and (out.extra["some"][batch["action_mask"]] > 0).all()
    every, mask = out.extra["choice_logprobs"], batch["action_mask"]
    assert every.shape == (*mask.shape, len(whole.tokenizer)) and (every[~mask] == 0).all()
    assert_close(every.gather(-1, batch["action"][..., None])[..., 0][mask], out.logprobs[mask])
    out.extra["some"].sum().backward()
    assert all(p.grad.abs().sum() > 0 for name, p in whole.named_parameters() if "embed" in name)


def test_hidden_states_are_those_before_every_choice():
    """As in a plain pass over the prompt and the completion; the last layer's are what the output layer reads."""
    torch.manual_seed(0)
    whole = TextPolicy(config=TINY, hidden_layers=[0.5, 1.0], value_head=True).eval()
    assert TextPolicy.predicts({"hidden_layers": [0.5]}) == {"hidden_states"}
    done = completions(whole, PROMPTS[:3], Sampling(max_tokens=6))
    batch = batch_of(whole, PROMPTS[:3], done)
    out, depth = whole(batch), TINY["num_hidden_layers"]
    assert out.extra["hidden_states"].shape == (*batch["action"].shape, 2, whole.hidden_size)
    assert out.values is not None and out.values.shape == batch["action"].shape
    for row, prompt in enumerate(PROMPTS[:3]):
        ids = torch.cat([whole.encode(prompt.observation)["input_ids"], done[row].action])[None]
        layers = whole.model(input_ids=ids, output_hidden_states=True).hidden_states
        t = len(done[row].action)
        for place, number in enumerate((max(1, round(depth / 2)), depth)):
            expected = layers[number][0, -t - 1 : -1]
            assert_close(out.extra["hidden_states"][row, :t, place], expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"hidden_layers must be depths in \(0, 1\]"):
        TextPolicy(config=TINY, hidden_layers=[0.0])


def test_statistics_see_the_chosen_id():
    """Without a filter the probability of the choice, at the temperature of its row."""
    torch.manual_seed(0)
    whole = TextPolicy(config=TINY, statistics={"plain": MinPProbability(0.0), "filtered": MinPProbability(0.9)})
    batch = batch_of(whole, PROMPTS[:3], completions(whole, PROMPTS[:3], Sampling(temperature=0.7, max_tokens=6)))
    out, mask = whole(batch), batch["action_mask"]
    assert_close(out.extra["plain"][mask], out.logprobs.exp()[mask])
    filtered, plain = out.extra["filtered"][mask], out.extra["plain"][mask]
    assert ((filtered == 0) | (filtered > plain)).all() and (filtered > 0).any() and (filtered == 0).any()


@pytest.mark.parametrize("cut", [{"top_p": 0.6}, {"min_p": 0.3}, {"top_k": 40, "top_p": 0.9}], ids=str)
def test_kept_ids_are_stored_end_to_end(policy, cut):
    """As many numbers as ids were kept, in rows of different lengths; those of a choice are those that were kept."""
    sampling = Sampling(max_tokens=24, stop=tuple("abcdefgh0123"), **cut)
    done = completions(policy, PROMPTS * 3, sampling)
    assert len({len(completion.action) for completion in done}) > 2
    batch = batch_of(policy, PROMPTS * 3, done)
    sizes, ids = batch["support_sizes"], batch["packed_support_ids"]
    assert ids.items.numel() == sizes.sum() and ids.lengths.tolist() == sizes.sum(1).tolist()
    assert (
        sizes.shape == batch["action_mask"].shape
        and (sizes[batch["action_mask"]] > 0).all()
        and not sizes[~batch["action_mask"]].any()
    )
    assert sizes.sum() < 0.7 * sizes.numel() * int(sizes.max())
    for completion in done[:4]:
        expected = plain_logits(policy, completion).float()
        for kept, row, chosen in zip(
            completion.extra["packed_support_ids"].split(completion.extra["support_sizes"].tolist()),
            expected,
            completion.action,
        ):
            assert chosen in kept
            assert set(kept.tolist()) == set(row.topk(len(kept)).indices.tolist())
    order = torch.randperm(batch.rows, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = policy(batch).logprobs
        parts = torch.cat([policy(piece).logprobs for piece in batch.select(order).split(4)])
    assert_close(parts, whole[order], atol=1e-5, rtol=0)
    assert_close(whole[batch["action_mask"]], batch["behavior_logprobs"][batch["action_mask"]], atol=1e-4, rtol=0)
