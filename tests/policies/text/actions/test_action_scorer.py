"""Action-scoring policy: log-probs, values and gradients against the untouched transformers model, string by string."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer

from mmrl.core.rng import Noise
from mmrl.core.types import Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.actions.action_scorer import ActionScorer
from tests.policies.text.oracle import TINY, decided

DECISIONS = [
    ("You see a key. ", ["go", "go left", "pick up the key"]),
    ("Wall. ", ["turn left", "turn right", "go forward", "pick up", "drop", "toggle"]),
    ("A longer observation, whose prompt needs more tokens than the others. > ", ["wait"]),
    ("You see a key. ", ["drop", "go"]),
]


def raw(text, actions):
    return {"messages": ({"role": "user", "content": text},), "images": (), "admissible_actions": actions}


def build(**arguments):
    torch.manual_seed(0)
    policy = ActionScorer(config=dict(TINY), **arguments)
    decided(policy.language_model)
    if policy.value_head is not None:
        torch.nn.init.normal_(policy.value_head[-1].weight)
    return policy.eval()


def sample(policy, sampling=None):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return engine.sample([Request(raw(*each), seed) for seed, each in enumerate(DECISIONS)], sampling or Sampling())


def rows(policy, done):
    return collate([Episode(Prompt(f"p/{i}"), i, 0, [Turn(c)]) for i, c in enumerate(done)], policy)


def brute_force(policy, mean=False, end=False):
    """For each decision the log-probabilities of its strings, and the state of the prompt's last token.

    One call of the transformers model for each string, without padding, masks or a cache.
    """
    text = policy.language_model
    model, tokenizer = copy.deepcopy(text.model), text.tokenizer
    model.set_attn_implementation("eager")
    out = []
    for prompt, actions in DECISIONS:
        ids, scores = tokenizer.encode(prompt, add_special_tokens=False), []
        for action in actions:
            tokens = tokenizer.encode(action, add_special_tokens=False) + [tokenizer.eos_token_id] * end
            result = model(torch.tensor([ids + tokens]), output_hidden_states=True)
            logprobs = result.logits[0].log_softmax(-1)
            chosen = [logprobs[len(ids) - 1 + t, token] for t, token in enumerate(tokens)]
            scores.append(torch.stack(chosen).mean() if mean else torch.stack(chosen).sum())
        out.append((torch.stack(scores), result.hidden_states[-1][0, len(ids) - 1]))
    return out


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("end_token", [False, True])
def test_log_probs_entropies_and_values_are_those_of_the_untouched_model(reduction, end_token):
    policy = build(value_head=True, value_hidden=[8, 8], reduction=reduction, end_token=end_token)
    temperature = 0.7
    batch = rows(policy, sample(policy, Sampling(temperature=temperature)))
    with torch.no_grad():
        out, expected = policy(batch), brute_force(policy, reduction == "mean", end_token)
    for i, (scores, state) in enumerate(expected):
        logprobs = (scores / temperature).log_softmax(0)
        assert_close(out.logprobs[i, 0], logprobs[batch["action"][i, 0]], atol=1e-5, rtol=0)
        assert_close(out.entropy[i, 0], -(logprobs.exp() * logprobs).sum(), atol=1e-5, rtol=1e-5)
        first, second, last = (each for each in policy.value_head.modules() if isinstance(each, torch.nn.Linear))
        value = last(torch.sigmoid(second(torch.sigmoid(first(state)))))[0]
        assert_close(out.values[i], value, atol=1e-5, rtol=1e-5)
        assert_close(batch["values"][i], value, atol=1e-5, rtol=1e-5)
    assert 0 < out.entropy[1, 0] < math.log(6) and out.entropy[2, 0] == 0  # one string: nothing to choose
    # the numbers of strings and their lengths would be confused without masks
    assert batch["obs.admissible_sizes"].lengths.tolist() == [3, 6, 1, 2]


def test_gradients_are_those_of_the_untouched_model():
    policy = build()
    batch = rows(policy, sample(policy))
    out = policy(batch)
    (out.logprobs.sum() + 0.1 * out.entropy.sum()).backward()
    mine = {name: p.grad.clone() for name, p in policy.language_model.model.named_parameters()}

    model, tokenizer, loss = copy.deepcopy(policy.language_model.model), policy.language_model.tokenizer, 0.0
    model.zero_grad()
    model.set_attn_implementation("eager")
    for i, (prompt, actions) in enumerate(DECISIONS):
        ids, scores = tokenizer.encode(prompt, add_special_tokens=False), []
        for action in actions:
            tokens = tokenizer.encode(action, add_special_tokens=False)
            logprobs = model(torch.tensor([ids + tokens])).logits[0].log_softmax(-1)
            scores.append(sum(logprobs[len(ids) - 1 + t, token] for t, token in enumerate(tokens)))
        logprobs = torch.stack(scores).log_softmax(0)
        loss = loss + logprobs[batch["action"][i, 0]] - 0.1 * (logprobs.exp() * logprobs).sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert_close(mine[name], parameter.grad, atol=2e-4, rtol=1e-3, msg=name)


def test_sampling_and_scoring_agree_and_the_text_is_the_string():
    policy = build()
    for sampling in (Sampling(), Sampling(temperature=2.0, top_p=0.8), Sampling(top_k=2), Sampling(decode="argmax")):
        done = sample(policy, sampling)
        batch = rows(policy, done)
        with torch.no_grad():
            assert_close(policy(batch).logprobs, batch["behavior_logprobs"], atol=1e-5, rtol=0)
        for (_, actions), completion in zip(DECISIONS, done):
            assert completion.output == actions[int(completion.action)]
            assert completion.ended == "done"
    expected = [int(scores.argmax()) for scores, _ in brute_force(policy)]
    assert [int(c.action) for c in sample(policy, Sampling(decode="argmax"))] == expected


def test_actions_are_drawn_with_their_probabilities():
    """Of 4,000 draws a frequency lies within 4.5 standard deviations of sqrt(p (1 - p) / 4000)."""
    policy = build(reduction="mean")
    inputs = policy.collate([policy.encode(raw(*DECISIONS[1]))])
    draws = 4000
    action = policy.act_groups(inputs, torch.zeros(draws, dtype=torch.long), Sampling(), Noise(range(draws)))
    with torch.no_grad():
        expected = brute_force(policy, mean=True)[1][0].softmax(0)
    frequency = torch.bincount(action.action[:, 0], minlength=6) / draws
    assert ((frequency - expected).abs() <= 4.5 * (expected * (1 - expected) / draws).sqrt() + 1e-9).all()


def test_the_company_of_a_decision_changes_nothing():
    policy = build(value_head=True)
    batch = rows(policy, sample(policy))
    with torch.no_grad():
        together = policy(batch)
        for i in (3, 1):
            alone = policy(batch.select(torch.tensor([i])))
            assert_close(alone.logprobs[0], together.logprobs[i], atol=1e-5, rtol=0)
            assert_close(alone.values[0], together.values[i], atol=1e-5, rtol=1e-5)


def test_the_strings_of_a_decision_share_one_reading_of_the_prompt():
    """Tokens that the network reads: 300 of the prompt and those of six strings, not six times the prompt."""
    policy, tokens = build(), []
    prompt, actions = "x" * 300, DECISIONS[1][1]
    inputs = policy.collate([policy.encode(raw(prompt, actions))])
    with torch.no_grad():
        policy.score(inputs)  # the first time compares the shared reading with one of each string alone
        embedding = policy.language_model.model.get_input_embeddings()
        embedding.register_forward_hook(lambda module, read, out: tokens.append(read[0].numel()))
        policy.score(inputs)
    assert 300 < sum(tokens) <= 300 + sum(map(len, actions))


def test_an_export_is_a_checkpoint_of_transformers_and_acts_alike(tmp_path):
    policy = build(value_head=True, value_hidden=[8])
    policy.save_pretrained(tmp_path)
    again = ActionScorer(path=str(tmp_path), value_head=True, value_hidden=[8]).eval()
    batch = rows(policy, sample(policy))
    with torch.no_grad():
        assert_close(again(batch).logprobs, policy(batch).logprobs, atol=1e-5, rtol=0)
        assert_close(again(batch).values, policy(batch).values, atol=1e-5, rtol=1e-5)
        model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
        prompt, (first, second) = DECISIONS[3]
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        scores = []
        for action in (first, second):
            tokens = tokenizer.encode(action, add_special_tokens=False)
            logprobs = model(torch.tensor([ids + tokens])).logits[0].log_softmax(-1)
            scores.append(sum(logprobs[len(ids) - 1 + t, token] for t, token in enumerate(tokens)))
        expected = torch.stack(scores).log_softmax(0)[batch["action"][3, 0]]
    assert_close(batch["behavior_logprobs"][3, 0], expected, atol=1e-5, rtol=0)


def test_a_demonstrated_action_is_its_index():
    policy = build()
    assert policy.encode_demonstration(raw(*DECISIONS[1]), "go forward").tolist() == [2]
    with pytest.raises(ValueError, match="'fly' is none of the admissible ones"):
        policy.encode_demonstration(raw(*DECISIONS[1]), "fly")


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([], "at least one string"),
        ("go", "at least one string"),
        (["go", " "], "' ' has no text"),
        (["go", "stay", "go"], "'go' and 'go' have the same tokens"),
        (["go", "<eos>"], "'<eos>'"),
        (["go", "x" * 600], "more than the 512 positions"),
    ],
)
def test_bad_strings_are_refused_by_name(actions, message):
    with pytest.raises(ValueError, match=message):
        build().encode(raw("A", actions))


def test_an_observation_without_actions_and_a_mean_of_strings_are_refused():
    policy = build()
    with pytest.raises(ValueError, match="rollout=text_environment"):
        policy.encode({"messages": ({"role": "user", "content": "A"},), "images": ()})
    with pytest.raises(ValueError, match="decode=mean"):
        policy.check_sampling(Sampling(decode="mean"))
    with pytest.raises(NotImplementedError, match="engine=vllm"):
        policy.canary()
