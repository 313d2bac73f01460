"""LDC's policy: steering by hand, the frozen model without strengths, rows of other strengths, controller, files."""

import copy

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.generation.ldc.policy import LEVELS, SteeredPolicy, SteeringNetworks, find_starts, steer
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY, decided

TEXTS = ("go", "turn left or", "a", "go", "go")
STRENGTHS = ((1.0, 0.0, 0.0), (0.0, -1.0, 0.5), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0), None)


def make_policy(trained=True, **options):
    torch.manual_seed(0)
    policy = decided(SteeredPolicy(config=dict(TINY), hidden=8, **options)).eval()
    if trained:
        with torch.no_grad():
            for part in policy.networks.parameters():
                part.normal_(0, 0.3)
    return policy


def raws(strengths=STRENGTHS):
    pairs = zip(TEXTS, strengths)
    rows = [{"messages": ({"role": "user", "content": text},), "images": (), "strengths": c} for text, c in pairs]
    return [row if row["strengths"] is not None else {k: v for k, v in row.items() if k != "strengths"} for row in rows]


def sample(policy, observations, sampling):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return engine.sample([Request(raw, seed) for seed, raw in enumerate(observations)], sampling)


def make_batch(policy, done):
    return collate([Episode(Prompt(f"p/{i}"), i, 0, [Turn(each)]) for i, each in enumerate(done)], policy)


def states_of(policy, done):
    """States [T, D] before the tokens of one completion by transformers alone, on one row without padding."""
    ids = torch.cat([done.observation["input_ids"], done.action])[None]
    with torch.no_grad():
        out = policy.model(ids, output_hidden_states=True, use_cache=False)
    return out.hidden_states[-1][0, -len(done.action) - 1 : -1]


def test_steering_by_hand():
    """h = (1, 2), W_1 = [[0, 1], [0, 0]], W_2 = [[1, 0], [0, -1]], c = (.5, -1).

    W_1 h = (2, 0), W_2 h = (1, -2); h' = (1, 2) + .5 (2, 0) - (1, -2) = (1, 4).
    """
    weights = torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]])
    assert_close(steer(torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0]), weights), torch.tensor([1.0, 4.0]))


@pytest.mark.parametrize("dials", [STRENGTHS, ((1.0, -0.5, 0.5),) * 5])
def test_sampled_and_scored_log_probs_are_those_of_steered_states(dials):
    """Rows of several strengths in one batch, of which some end before others and leave it."""
    policy = make_policy()
    done = sample(policy, raws(dials), Sampling(max_tokens=24, temperature=0.7, stop=tuple("abcdefghijklmnop")))
    assert len({len(each.action) for each in done}) > 2
    out = policy(make_batch(policy, done))
    for i, (each, strengths) in enumerate(zip(done, dials)):
        states = states_of(policy, each)
        steered = states.clone()
        for c, weight in zip(strengths or (), policy.networks.steering):
            steered = steered + c * states @ weight.T
        logits = steered @ policy.model.lm_head.weight.T / 0.7
        expected = logits.log_softmax(-1).gather(1, each.action[:, None])[:, 0]
        assert_close(each.behavior_logprobs, expected, atol=2e-4, rtol=0)
        assert_close(out.logprobs[i, : len(expected)], expected, atol=2e-4, rtol=0)
        entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
        assert_close(out.entropy[i, : len(expected)], entropy, atol=2e-4, rtol=1e-4)


def test_without_strengths_it_is_the_frozen_model_exactly():
    """c = 0, and new weights with any c: tokens and log-probs are those of TextPolicy, bit for bit."""
    still, new = make_policy(), make_policy(trained=False)
    plain = TextPolicy(config=dict(TINY)).eval()
    plain.model.load_state_dict(still.model.state_dict())
    sampling = Sampling(max_tokens=8)
    expected = sample(plain, raws((None,) * 5), sampling)
    for policy, strengths in ((still, ((0.0, 0.0, 0.0),) * 5), (still, (None,) * 5), (new, STRENGTHS)):
        done = sample(policy, raws(strengths), sampling)
        assert [each.action.tolist() for each in done] == [each.action.tolist() for each in expected]
        assert all(torch.equal(a.behavior_logprobs, b.behavior_logprobs) for a, b in zip(done, expected))
    batch = make_batch(still, sample(still, raws((None,) * 5), sampling))
    with torch.no_grad():
        assert torch.equal(still(batch).logprobs, plain(make_batch(plain, expected)).logprobs)


def test_only_the_weights_of_the_dimension_that_is_set_get_a_gradient():
    policy = make_policy()
    done = sample(policy, raws(((0.0, 1.0, 0.0),) * 5), Sampling(max_tokens=4))
    policy(make_batch(policy, done)).logprobs.sum().backward()
    size = policy.networks.steering.grad.flatten(1).abs().amax(1)
    assert size[1] > 0 and size[0] == size[2] == 0
    assert all(weight.grad is None for weight in policy.model.parameters())


def test_sentences_begin_after_boundaries():
    """Boundary 9: of 4 9 5 9 6 the tokens 4, 5 and 6 begin a sentence; a boundary at the end begins none."""
    assert find_starts(torch.tensor([[4, 9, 5, 9, 6], [4, 5, 6, 7, 9]]), 9).tolist() == [
        [True, False, True, False, True],
        [True, False, False, False, False],
    ]


def test_the_controller_reads_the_states_of_first_tokens_alone():
    """Its logits are those of torch's GRU cell, called sentence by sentence on each row alone."""
    torch.manual_seed(1)
    networks = SteeringNetworks(6, 2, 5)
    states, starts = torch.randn(2, 4, 6), torch.tensor([[True, False, True, True], [True, False, False, False]])
    logits = networks.predict_levels(states, starts)
    gru, cell = networks.sentences, torch.nn.GRUCell(6, 5)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, name).data = getattr(gru, f"{name}_l0").data
    for row in range(2):
        memory = torch.zeros(5)
        for t in range(4):
            if starts[row, t]:
                memory = cell(states[row, t], memory)
                assert_close(logits[row, t], networks.levels(memory).view(2, len(LEVELS)))
            else:
                assert (logits[row, t] == 0).all()


def test_predicted_strengths_are_the_most_likely_levels_of_the_next_sentence():
    policy = make_policy()
    observation = policy.encode(raws()[0])
    text = torch.tensor(policy.tokenizer.encode("ba ", add_special_tokens=False))
    ids = torch.cat([observation["input_ids"], text])[None]
    with torch.no_grad():
        states = policy.model(ids, output_hidden_states=True, use_cache=False).hidden_states[-1][0]
        first = states[[len(observation["input_ids"]) - 1, -1]][None]  # before "b", and after the blank
        logits = policy.networks.levels(policy.networks.sentences(first)[0][0, -1]).view(3, 3)
    expected = [LEVELS[i] for i in logits.argmax(-1).tolist()]
    assert policy.predict_strengths(observation, text).tolist() == expected


def test_dials_and_controller_are_trained_apart():
    """The gradient of one part's loss is that of its own weights alone; the language model has none."""
    for trains, parts in (("dials", {"steering", "critic"}), ("controller", {"sentences", "levels"})):
        policy = make_policy(trains=trains)
        trained = {name.split(".")[1] for name, weight in policy.named_parameters() if weight.requires_grad}
        assert trained == parts
        out = policy(make_batch(policy, sample(policy, raws(), Sampling(max_tokens=5))))
        assert ("strength_logits" in out.extra) == (trains == "controller")
        logits = out.extra.get("strength_logits", torch.zeros(1))
        (out.logprobs.sum() + out.values.sum() + logits.sum()).backward()
        assert all(weight.grad is not None for weight in policy.parameters() if weight.requires_grad)


def test_a_saved_folder_is_read_again(tmp_path):
    policy = make_policy()
    policy.save_pretrained(tmp_path)
    again = SteeredPolicy(str(tmp_path), hidden=8).eval()
    one, other = (sample(each, raws(), Sampling(max_tokens=5)) for each in (policy, again))
    assert [done.action.tolist() for done in one] == [done.action.tolist() for done in other]
    with pytest.raises(ValueError, match="cannot be loaded"):
        TextPolicy(str(tmp_path))


def test_what_does_not_fit_is_refused_by_name():
    policy = make_policy()
    with pytest.raises(ValueError, match=r"2 strengths.*policy\.dimensions=2"):
        policy.encode({**raws()[0], "strengths": (1.0, 0.0)})
    with pytest.raises(ValueError, match=r"policy\.boundary='ab' must be one token"):
        make_policy(boundary="ab")
    with pytest.raises(ValueError, match=r"policy\.trains must be dials or controller"):
        make_policy(trains="all")
    with pytest.raises(ValueError, match=r"policy\.dimensions must be at least 1"):
        make_policy(dimensions=0)
    with pytest.raises(ValueError, match=r"sampling\.top_k has no meaning for SteeredPolicy"):
        policy.check_sampling(Sampling(top_k=3))
    with pytest.raises(NotImplementedError, match="engine=vllm has none"):
        policy.canary()
    assert copy.deepcopy(policy).is_built


def test_a_policy_predicts_strengths_where_its_controller_is_trained():
    assert SteeredPolicy.predicts({"trains": "dials"}) == SteeredPolicy.predicts({}) == {"values"}
    assert SteeredPolicy.predicts({"trains": "controller"}) == {"values", "strength_logits"}


def test_levels_are_predicted_inside_the_rows_alone():
    """A boundary outside the row begins no sentence; the first token always does."""
    policy = make_policy()
    states, tokens = torch.randn(1, 4, policy.networks.sentences.input_size), torch.zeros(1, 4, dtype=torch.long)
    tokens[0, [0, 2]] = policy.boundary
    inside = torch.tensor([[True, True, False, False]])
    sizes = policy.predict_levels(states, tokens, inside).detach().abs().flatten(2).sum(-1)[0]
    assert (sizes > 0).tolist() == [True, True, False, False]
