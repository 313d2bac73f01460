"""Guided decoding: brute force over all strings of an expression gives the same distribution and the same gradient."""

import copy
import json
import re
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Prompt, Sampling
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.transcript import Transcript
from tests.policies.text.oracle import TINY, batch_of, completions, decided, largest_log_ratio
from tests.tiny_recipes import QUIET, TEXT

pytest.importorskip("llguidance")
REGEX = "(ab|ac|bd?|cab)(!|\\?\\?)?"
STRINGS = [head + tail for head in ("ab", "ac", "b", "bd", "cab") for tail in ("", "!", "??")]
PROMPTS = [
    Prompt(f"text/train/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(("1+1=", "x", "ab"))
]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["red", "blue"]}},
    "required": ["n", "kind"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval()


def enumerate_logprobs(policy, temperature=1.0):
    """Oracle: log-probability [S] of each string by transformers' logits, renormalised over the ids that lead on.

    Which ids lead on is read from the list of strings alone.
    """
    tokenizer, end = policy.tokenizer, policy.tokenizer.eos_token_id
    prompt = policy.encode(PROMPTS[0].observation)["input_ids"].tolist()
    sequences = [(*tokenizer.encode(text, add_special_tokens=False), end) for text in STRINGS]
    totals = []
    for ids in sequences:
        logits = policy.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float() / temperature
        total = 0.0
        for t, token in enumerate(ids):
            possible = sorted({other[t] for other in sequences if other[:t] == ids[:t]})
            total = total + logits[t, token] - logits[t, possible].logsumexp(0)
        totals.append(total)
    return torch.stack(totals)


def strings_batch(policy, temperature=1.0):
    """All strings as completions of one prompt, each with the columns that guided sampling writes."""
    sampling = Sampling(regex=REGEX, max_tokens=8, temperature=temperature)
    (like,) = completions(policy, PROMPTS[:1], sampling)
    done = []
    for text in STRINGS:
        ids = torch.tensor([*policy.tokenizer.encode(text, add_special_tokens=False), policy.tokenizer.eos_token_id])
        columns = policy.grammars.row(sampling.guide, len(ids))
        zeros, ones = torch.zeros(len(ids)), torch.ones(len(ids), dtype=torch.bool)
        extra = {**like.extra, **columns}
        done.append(replace(like, action=ids, behavior_logprobs=zeros, action_mask=ones, extra=extra))
    return batch_of(policy, PROMPTS[:1] * len(done), done)


@pytest.mark.parametrize("vocabulary", [128, 129])
def test_vocabularies_whose_size_32_divides_are_sampled_and_scored(vocabulary):
    """llguidance's masks have a word more there, and rows that have ended have masks of our own."""
    torch.manual_seed(0)
    policy = TextPolicy(config=TINY)
    policy.model.resize_token_embeddings(vocabulary)
    policy = decided(policy).eval()
    done = completions(policy, PROMPTS * 4, Sampling(regex=REGEX, max_tokens=8))
    texts = policy.tokenizer.batch_decode([completion.action for completion in done], skip_special_tokens=True)
    assert set(texts) <= set(STRINGS)
    assert len({len(completion.action) for completion in done}) > 1
    assert largest_log_ratio(policy, PROMPTS * 4, done) < 1e-4


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_learner_scores_the_distribution_over_all_strings(policy, temperature):
    batch = strings_batch(policy, temperature)
    with torch.no_grad():
        out = policy(batch)
        expected = enumerate_logprobs(policy, temperature)
    assert_close(expected.exp().sum(), torch.tensor(1.0))
    assert_close(out.logprobs.sum(1), expected, atol=1e-5, rtol=1e-5)
    assert (out.extra["full_logprobs"].sum(1) < expected - 1).all()  # the expression cuts off most of the mass


def test_the_policy_gradient_is_that_of_the_enumerated_distribution(policy):
    """d/dw sum_s p(s) A(s) by autograd, and by the learner's sum_s p(s) A(s) d log p(s)/dw with group advantages."""
    model = copy.deepcopy(policy)
    rewards = torch.linspace(-1.0, 2.0, len(STRINGS)) ** 2
    probabilities = enumerate_logprobs(model).exp()
    expected = torch.autograd.grad((probabilities * rewards).sum(), list(model.model.parameters()), allow_unused=True)
    mean = (probabilities.detach() * rewards).sum()
    weights = probabilities.detach() * (rewards - mean)
    loss = (weights * model(strings_batch(model)).logprobs.sum(1)).sum()
    gradient = torch.autograd.grad(loss, list(model.model.parameters()), allow_unused=True)
    scale = max(float(each.abs().max()) for each in expected if each is not None)
    for computed, reference in zip(gradient, expected, strict=True):
        if reference is not None:
            assert_close(computed / scale, reference / scale, atol=1e-5, rtol=1e-4)


def test_draws_have_the_frequencies_of_the_enumerated_distribution(policy):
    done = completions(
        policy,
        [Prompt(f"text/train/{i}", PROMPTS[0].messages) for i in range(2000)],
        Sampling(regex=REGEX, max_tokens=8),
    )
    with torch.no_grad():
        expected = enumerate_logprobs(policy).exp()
    outputs = [completion.output for completion in done]
    frequencies = torch.tensor([outputs.count(text) / len(outputs) for text in STRINGS])
    assert set(outputs) <= set(STRINGS)
    assert ((frequencies - expected).abs() < 4 * (expected * (1 - expected) / 2000).sqrt() + 1e-3).all()


SAMPLINGS = {
    "plain": {},
    "cool": {"temperature": 0.6},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.6, "temperature": 1.4},
    "min_p": {"min_p": 0.3},
    "greedy": {"decode": "argmax"},
}


@pytest.mark.parametrize("cut", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("guide", [{"regex": "[a-f]{1,3}(-[0-9]+)?"}, {"json_schema": SCHEMA}], ids=["regex", "json"])
def test_what_is_sampled_matches_and_is_scored_alike(policy, guide, cut):
    """In groups, with prompts of different lengths, and rows that end at different times."""
    sampling, prompts = Sampling(max_tokens=24, **guide, **cut), PROMPTS * 5
    done = completions(policy, prompts, sampling, max_rows=7)
    for completion in done:
        if completion.ended == "done" and "regex" in guide:
            assert re.fullmatch(guide["regex"], completion.output)
        elif completion.ended == "done":
            answer = json.loads(completion.output)
            assert answer.keys() == {"n", "kind"} and 0 <= answer["n"] <= 99 and answer["kind"] in ("red", "blue")
    assert "done" in {completion.ended for completion in done}
    assert largest_log_ratio(policy, prompts, done) < 1e-4
    if "packed_support_ids" in done[0].extra:  # truncation happens among the ids that the expression allows
        assert not {"packed_guides", "guide_sizes"} & done[0].extra.keys()


def test_rows_of_several_turns_and_rows_without_a_guide_are_scored_in_one_batch(policy):
    sampling = Sampling(regex="[a-c]{2}", max_tokens=4)
    first, second = completions(policy, PROMPTS[:2], sampling)
    talk = Transcript(PROMPTS[0].observation)
    talk.write(first)
    talk.read(policy.tokenize("ab and "))  # forced ids that the expression would allow too
    talk.write(second)
    both = talk.completion("", "done")
    free = completions(policy, PROMPTS[2:], Sampling(max_tokens=5))
    batch = batch_of(policy, PROMPTS, [both, first, *free])
    sizes = batch["guide_sizes"][0]
    allowed = policy.grammars.allowed_ids(batch)
    index = allowed.index.view(batch["action"].shape)
    assert ((index[0] > 0) == batch["action_mask"][0]).all() and (sizes > 0).sum() == 2
    assert not index[2].any() and len(allowed.words) == 3  # a letter, the end, and row 0
    with torch.no_grad():
        logprobs = policy(batch).logprobs
    turn = len(first.action)
    assert_close(logprobs[0, :turn], first.behavior_logprobs, atol=1e-4, rtol=0)
    assert_close(logprobs[1, :turn], first.behavior_logprobs, atol=1e-4, rtol=0)
    assert_close(logprobs[2, : len(free[0].action)], free[0].behavior_logprobs, atol=1e-4, rtol=0)
    order = torch.tensor([2, 0])
    with torch.no_grad():
        assert_close(policy(batch.select(order)).logprobs, logprobs[order], atol=1e-5, rtol=0)


def test_choices_that_do_not_follow_are_refused(policy):
    (done,) = completions(policy, PROMPTS[:1], Sampling(regex="[a-c]{2}", max_tokens=4))
    assert policy.grammars.follows(Sampling(regex="[a-z]+").guide, done.action.tolist())
    assert not policy.grammars.follows(Sampling(regex="[0-9]+").guide, done.action.tolist())
    done.action[0] = policy.tokenizer.convert_tokens_to_ids("9")
    with pytest.raises(ValueError, match="does not follow"):
        policy(batch_of(policy, PROMPTS[:1], [done]))
    with pytest.raises(ValueError, match="no token of the policy's vocabulary"):
        completions(policy, PROMPTS[:1], Sampling(regex="aé", max_tokens=4))


def test_a_copied_policy_compiles_for_itself(policy):
    completions(policy, PROMPTS[:1], Sampling(regex="a+", max_tokens=2))
    copied = copy.deepcopy(policy)
    assert completions(copied, PROMPTS[:1], Sampling(regex="[ab]", max_tokens=3))[0].output in ("a", "b")


BAD = {
    "open group": ({"regex": "(yes|no"}, "unclosed group"),
    "look-ahead": ({"regex": "a(?=b)"}, "look-around"),
    "empty": ({"regex": ""}, "empty"),
    "two": ({"regex": "a", "json_schema": {}}, "one of them"),
    "stop": ({"regex": "a", "stop": ("b",)}, "sampling.stop"),
    "mean": ({"regex": "a", "decode": "mean"}, "decode=mean"),
    "no JSON": ({"json_schema": "{type"}, "no JSON"),
    "no object": ({"json_schema": "3"}, "must be an object"),
    "unknown type": ({"json_schema": {"type": "objet"}}, "objet"),
    "not enforced": ({"json_schema": {"not": {"type": "string"}}}, "Unimplemented"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_a_bad_expression_is_refused_with_the_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


def test_a_run_learns_with_an_expression(tmp_path):
    """GRPO from random weights: letters and digits are allowed, digits are rewarded, and the share of digits grows."""
    words = (
        *TEXT,
        *QUIET,
        "data.num_prompts=12",
        "trainer.max_epochs=12",
        "optimizer.lr=1e-2",
        f"run_dir={tmp_path}/run",
    )
    guided = 'regex="[a-z0-9]{5}"'
    cli = CLI(to_lightning(compose([*words, f"sampling.{guided}", f"evaluation.sampling.greedy.{guided}",
                                    "sampling.max_tokens=6", "data.reward.weights={digits: 1.0}"])))  # fmt: skip
    sampling = cli.datamodule.sampling
    prompts = [Prompt(f"text/train/{i}", ({"role": "user", "content": str(i)},)) for i in range(64)]

    def share():
        outputs = [completion.output for completion in completions(cli.model.policy, prompts, sampling)]
        assert all(re.fullmatch("[a-z0-9]{5}", output) for output in outputs)
        return sum(c.isdigit() for output in outputs for c in output) / (5 * len(outputs))

    before = share()
    cli.fit()
    assert before < 0.5 and share() > before + 0.2
    greedy = cli.datamodule.evaluation.sampling["greedy"]
    assert greedy.regex == sampling.regex == "[a-z0-9]{5}"
