"""STG: the mixture by hand, the frozen model bit for bit, gradients of gate and adapter, files, and refusals."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.rng import Noise
from mmrl.core.types import Episode, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.generation.stg import SelectiveTokenPolicy, concatenate_sources, score_sources
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.demonstrations import demonstrated_choices
from tests.policies.text.oracle import TINY, batch_of, completions, decided, plain_generate, plain_logits

PROMPTS = [Prompt(f"p/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(["go", "turn left or", "a"])]
FROZEN, ADAPTER = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.1, 0.8])
GATE = torch.tensor([0.75, 0.25])


def make_policy(trained=True, **options):
    """A tiny policy with large weights, and networks of the sources that are as if they had been trained."""
    torch.manual_seed(0)
    policy = decided(SelectiveTokenPolicy(config=dict(TINY), hidden=8, **options)).eval()
    if trained:
        with torch.no_grad():
            for part in policy.networks.parameters():
                part.normal_(0, 0.5)
    return policy


def choose_frozen(policy):
    """The policy with w = [1, 0]."""
    with torch.no_grad():
        policy.networks.gate[2].weight.zero_()
        policy.networks.gate[2].bias.copy_(torch.tensor([0.0, -1e4]))
    return policy


def frozen_states(policy, done):
    """Frozen logits [T, V] and states [T, D] of one completion by transformers alone, on one row without padding."""
    tokens = done.action % policy.vocabulary
    ids = torch.cat([done.observation["input_ids"], tokens])[None]
    with torch.no_grad():
        out = policy.model(ids, output_hidden_states=True, use_cache=False)
    at = slice(-len(tokens) - 1, -1)
    return out.logits[0, at], out.hidden_states[-1][0, at], tokens


def brute_force(policy, done, temperature=1.0):
    """[T] log w_z + log p_z(token) of one completion, and the distributions w [T, 2], p_0 and p_1 [T, V]."""
    logits, states, tokens = frozen_states(policy, done)
    adapter, gate = copy.deepcopy(policy.networks.adapter), policy.networks.gate
    first = (logits / temperature).softmax(-1)
    second = ((states + adapter(states)) @ policy.model.lm_head.weight.T / temperature).softmax(-1)
    weights = gate(states).softmax(-1)
    at, z = torch.arange(len(tokens)), done.action // policy.vocabulary
    chosen = torch.where(z == 0, first[at, tokens], second[at, tokens])
    return (weights[at, z] * chosen).log(), weights, first, second


def test_the_mixture_by_hand():
    """w = [.75, .25], p_0 = [.7, .2, .1], p_1 = [.1, .1, .8].

    Concatenated: .75 (.7, .2, .1) = (.525, .15, .075), .25 (.1, .1, .8) = (.025, .025, .2). The mixture of token by
    token sums: .525 + .025 = .55, .15 + .025 = .175, .075 + .2 = .275. The adapter with token 2: log .2 = -1.6094.
    """
    both = concatenate_sources(FROZEN.log(), ADAPTER.log(), GATE.log())
    assert_close(both.softmax(-1), torch.tensor([0.525, 0.15, 0.075, 0.025, 0.025, 0.2]))
    assert_close(both.log_softmax(-1)[5], torch.tensor(-1.6094), atol=5e-5, rtol=0)
    source, token = torch.tensor([0, 1, 2, 2, 2]), torch.tensor([0, 2, 0, 1, 2])
    scores = score_sources(source, GATE.log().expand(5, 2), FROZEN.log()[token], ADAPTER.log()[token])
    assert_close(scores.exp(), torch.tensor([0.525, 0.2, 0.55, 0.175, 0.275]))
    assert_close(scores[1], torch.tensor(-1.6094), atol=5e-5, rtol=0)


@pytest.mark.parametrize("lead", [-1e4, -3.0, 0.0, 4.0, 1e4])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_is_that_of_the_tokens(lead, temperature):
    """softmax(result / T) = [w_0 softmax(l_0 / T), w_1 softmax(l_1 / T)], for every gate."""
    generator = torch.Generator().manual_seed(0)
    frozen, adapter = torch.randn(2, 7, generator=generator) * 3
    gate = torch.tensor([1.0, 1.0 + lead])
    both = (concatenate_sources(frozen, adapter, gate, temperature) / temperature).softmax(-1)
    w = gate.double().softmax(-1)
    expected = [w[z] * (logits.double() / temperature).softmax(-1) for z, logits in enumerate((frozen, adapter))]
    assert_close(both, torch.cat(expected).float(), atol=1e-6, rtol=1e-5)


def test_the_frozen_model_alone_is_reproduced_bit_for_bit():
    """With w = [1, 0]: logits, greedy text and scores are those of the untouched transformers model."""
    policy = choose_frozen(make_policy())
    ids = torch.tensor([[5, 6, 7], [9, 8, 7]])
    with torch.no_grad():
        plain = policy.model(input_ids=ids).logits
        with policy.mix(1.0):
            both = policy.model(input_ids=ids).logits
    assert torch.equal(both[..., : policy.vocabulary], plain)
    assert (both.softmax(-1)[..., policy.vocabulary :] == 0).all()

    other = TextPolicy(config=dict(TINY)).eval()
    other.model.load_state_dict(policy.model.state_dict())
    sampling = Sampling(max_tokens=6, temperature=0.8)
    done, expected = (completions(each, PROMPTS, sampling) for each in (policy, other))
    assert [each.action.tolist() for each in done] == [each.action.tolist() for each in expected]
    assert [each.output for each in done] == [each.output for each in expected]
    with torch.no_grad():
        assert torch.equal(
            policy(batch_of(policy, PROMPTS, done)).logprobs, other(batch_of(other, PROMPTS, done)).logprobs
        )
    for each in completions(policy, PROMPTS, Sampling(decode="argmax", max_tokens=5)):
        assert each.action.tolist() == plain_generate(policy, each.observation, 5)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_sampled_and_scored_log_probs_are_those_of_the_sources(temperature):
    policy = make_policy()
    done = completions(policy, PROMPTS, Sampling(max_tokens=8, temperature=temperature))
    sources = torch.cat([each.action // policy.vocabulary for each in done])
    assert {0, 1} == set(sources.tolist())
    out = policy(batch_of(policy, PROMPTS, done))
    for i, each in enumerate(done):
        expected, w, first, second = brute_force(policy, each, temperature)
        assert_close(each.behavior_logprobs, expected, atol=1e-4, rtol=0)
        assert_close(out.logprobs[i, : len(expected)], expected, atol=1e-4, rtol=0)
        whole = torch.cat([w[:, :1] * first, w[:, 1:] * second], dim=1)
        entropy = torch.special.entr(whole).sum(-1)
        assert_close(out.entropy[i, : len(expected)], entropy, atol=1e-4, rtol=1e-4)
        values = policy.networks.critic(frozen_states(policy, each)[1])[:, 0]
        assert_close(out.values[i, : len(expected)], values, atol=1e-4, rtol=1e-4)
        assert each.output == policy.tokenizer.decode(each.action % policy.vocabulary, skip_special_tokens=True)
    assert (out.logprobs[0, len(done[0].action) :] == 0).all()


def test_sources_and_tokens_are_drawn_with_their_probabilities():
    """Of 8,000 draws a frequency lies within 4.5 standard deviations of sqrt(p (1 - p) / 8000)."""
    policy = make_policy()
    inputs = policy.collate([policy.encode(PROMPTS[0].observation)])
    draws = 8000
    action = policy.act_groups(
        inputs, torch.zeros(draws, dtype=torch.long), Sampling(max_tokens=1), Noise(range(draws))
    )
    done = completions(policy, PROMPTS[:1], Sampling(max_tokens=1))[0]
    _, w, first, second = brute_force(policy, done)
    expected = torch.cat([w[0, 0] * first[0], w[0, 1] * second[0]]).detach()
    frequency = torch.bincount(action.action[:, 0], minlength=2 * policy.vocabulary) / draws
    assert ((frequency - expected).abs() <= 4.5 * (expected * (1 - expected) / draws).sqrt() + 1e-9).all()
    assert action.counts["adapter_tokens"] == (action.action >= policy.vocabulary).sum()


def test_where_the_frozen_model_wrote_only_the_gate_gets_a_gradient():
    """d log w_0 / d gate bias = (w_1, -w_1) summed over tokens, and exactly 0 for the adapter."""
    policy = make_policy()
    batch = batch_of(
        policy, PROMPTS, completions(choose_frozen(copy.deepcopy(policy)), PROMPTS, Sampling(max_tokens=4))
    )
    mask = batch["action_mask"]
    assert (batch["action"] < policy.vocabulary).all()
    policy(batch).logprobs[mask].sum().backward()
    assert all((part.grad == 0).all() for part in policy.networks.adapter.parameters())
    assert all(part.grad is None for part in policy.model.parameters())
    with torch.no_grad():
        done = [policy.split(row)[1][m] for row, m in zip(batch["action"], mask)]
        prompts = [policy.encode(prompt.observation) for prompt in PROMPTS]
        completed = [demonstrated_choices(tokens, prompt, "") for tokens, prompt in zip(done, prompts)]
        share = sum(brute_force(policy, each)[1][:, 1].sum() for each in completed)
    assert_close(policy.networks.gate[2].bias.grad, torch.stack([share, -share]), atol=1e-4, rtol=1e-4)

    policy.zero_grad()  # the same tokens of the adapter move it
    policy(batch.with_columns(action=batch["action"] + policy.vocabulary)).logprobs[mask].sum().backward()
    assert all(part.grad.abs().max() > 0 for part in policy.networks.adapter.parameters())


def test_a_demonstration_is_scored_by_the_mixture_and_teaches_both_sources():
    policy = make_policy()
    raw = PROMPTS[0].observation
    ids = policy.encode_demonstration(raw, "bade")
    assert (ids // policy.vocabulary == 2).all() and policy.decode(ids.tolist()) == "bade"
    done = demonstrated_choices(ids, policy.encode(raw), "bade")
    out = policy(collate([Episode(PROMPTS[0], 0, 0, [Turn(done)])], policy))
    _, w, first, second = brute_force(policy, demonstrated_choices(ids % policy.vocabulary, policy.encode(raw), ""))
    at, tokens = torch.arange(len(ids)), ids % policy.vocabulary
    expected = (w[:, 0] * first[at, tokens] + w[:, 1] * second[at, tokens]).log()
    assert_close(out.logprobs[0], expected, atol=1e-4, rtol=0)
    out.logprobs.sum().backward()
    assert all(part.grad.abs().max() > 0 for name, part in policy.networks.named_parameters() if "critic" not in name)


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_a_new_adapter_is_the_frozen_model(share):
    """A token has log p_0 and the log of its source's share."""
    policy = make_policy(trained=False, adapter_share=share)
    for done in completions(policy, PROMPTS, Sampling(max_tokens=4)):
        tokens = done.action % policy.vocabulary
        plain = plain_logits(policy, replace(done, action=tokens)).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        shares = torch.tensor([1 - share, share])[done.action // policy.vocabulary]
        assert_close(done.behavior_logprobs, plain + shares.log(), atol=1e-4, rtol=0)


def test_texts_stops_and_contexts_read_tokens():
    policy = make_policy()
    ids = torch.tensor(policy.tokenizer.encode("ba", add_special_tokens=False))
    both = torch.stack([ids[0], ids[1] + policy.vocabulary])
    assert policy.decode(both.tolist()) == policy.turn_text(both.tolist()) == "ba"
    assert policy.token_texts(both.tolist()) == ["b", "a"]
    end = policy.tokenizer.eos_token_id + policy.vocabulary
    assert policy.stop_condition(())(torch.tensor([[end], [end - 1]])).tolist() == [True, False]
    assert policy.stop_condition(("a",))(both[None]).tolist() == [True]
    observation = policy.encode(PROMPTS[0].observation)
    assert policy.extend(observation, both)["input_ids"][-2:].tolist() == ids.tolist()


def test_a_saved_folder_is_read_again_and_is_no_plain_language_model(tmp_path):
    policy = make_policy()
    policy.save_pretrained(tmp_path)
    again = SelectiveTokenPolicy(str(tmp_path), hidden=8).eval()
    one, other = (completions(each, PROMPTS, Sampling(max_tokens=5)) for each in (policy, again))
    assert [done.action.tolist() for done in one] == [done.action.tolist() for done in other]
    for name, weight in policy.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
    with pytest.raises(ValueError, match=r"cannot be loaded"):
        TextPolicy(str(tmp_path))
    frozen = TextPolicy(str(tmp_path / "frozen_model")).eval()
    assert all(torch.equal(frozen.model.state_dict()[name], w) for name, w in policy.model.state_dict().items())
    fresh = SelectiveTokenPolicy(str(tmp_path / "frozen_model"), hidden=4).eval()
    assert (fresh.networks.adapter[2].weight == 0).all()
    with pytest.raises(ValueError, match=r"networks\.safetensors"):
        SelectiveTokenPolicy(str(tmp_path), hidden=4)


@pytest.mark.parametrize(
    ("sampling", "key"),
    [({"top_k": 2}, "top_k"), ({"top_p": 0.9}, "top_p"), ({"annealing": {}}, "annealing"), ({"regex": "a+"}, "regex")],
)
def test_samplings_without_a_meaning_are_refused(sampling, key):
    with pytest.raises(ValueError, match=rf"sampling.*{key}.*leave it out"):
        make_policy().check_sampling(Sampling(**sampling))


def test_what_does_not_fit_is_refused_by_name():
    policy = make_policy()
    with pytest.raises(NotImplementedError, match="engine=vllm has none"):
        policy.canary()
    with pytest.raises(NotImplementedError, match="rollout=demonstrations"):
        policy.encode_conversation([], None)
    with pytest.raises(ValueError, match=r"policy\.lora=.*leave it out"):
        make_policy(lora={"r": 2})
    with pytest.raises(ValueError, match=r"policy\.hidden must be at least 1"):
        SelectiveTokenPolicy(config=dict(TINY), hidden=0)
    with pytest.raises(ValueError, match=r"policy\.adapter_share must be"):
        SelectiveTokenPolicy(config=dict(TINY), adapter_share=1.0)
    with pytest.raises(ValueError, match=r"sequence_parallel=2"):
        SelectiveTokenPolicy.refuse_division({}, 2)
    scaled = {**TINY, "model_type": "gemma2", "head_dim": 8, "final_logit_softcapping": 5.0}
    with pytest.raises(ValueError, match="gemma2 are not the outputs of that layer"):
        SelectiveTokenPolicy(config=scaled, hidden=4)


@pytest.mark.parametrize("gate", [[0.0, -torch.inf], [-torch.inf, 0.0]])
def test_a_source_without_a_share_leaves_finite_logits(gate):
    logits = concatenate_sources(FROZEN.log(), ADAPTER.log(), torch.tensor(gate))
    expected = torch.cat([FROZEN * (gate[0] == 0), ADAPTER * (gate[1] == 0)])
    assert logits.isfinite().all()
    assert_close(logits.softmax(-1), expected)


def test_entropies_and_values_have_gradients():
    """The gradient of the bias of gate and critic by central differences; the adapter has one too."""
    policy = make_policy().double()
    batch = batch_of(policy, PROMPTS, completions(policy, PROMPTS, Sampling(max_tokens=4)))
    for name, bias in (("entropy", policy.networks.gate[2].bias), ("values", last_bias(policy.networks.critic))):
        policy.zero_grad()
        getattr(policy(batch), name).sum().backward()
        if name == "entropy":
            assert all(part.grad.abs().max() > 0 for part in policy.networks.adapter.parameters())
        sums = []
        for step in (1e-2, -1e-2):
            with torch.no_grad():
                bias[0] += step
                sums.append(float(getattr(policy(batch), name).sum()))
                bias[0] -= step
        slope = (sums[0] - sums[1]) / 2e-2
        assert abs(slope) > 1e-3 and float(bias.grad[0]) == pytest.approx(slope, rel=1e-2)


def last_bias(network):
    return [part for name, part in network.named_parameters() if name.endswith("bias")][-1]
