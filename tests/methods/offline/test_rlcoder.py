"""RLCoder: logits, weighted losses and labels by hand, the retriever as a policy, and repositories of lines."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from mmrl.core.rng import Noise
from mmrl.core.types import Context, Prompt, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.offline.rlcoder import labels, retriever
from mmrl.methods.offline.rlcoder.labels import (
    STOP,
    LabelledRetrieval,
    Retrieval,
    RetrievalAboveStop,
    keep_above_stop,
    query_of,
    token_weights,
    weighted_loss,
)
from mmrl.methods.offline.rlcoder.retriever import RetrieverPolicy, retrieval_logits
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.code.repository import Repository
from tests.policies.text.oracle import TINY

torch.manual_seed(0)
RETRIEVER = RetrieverPolicy(config={**TINY, "initializer_range": 0.3}).eval()
GENERATOR = TextPolicy(config={**TINY, "initializer_range": 0.3}).eval()
TASK = Repository(lines=4, above=1)


def context(**options):
    engine = LocalEngine()
    engine.sync(RETRIEVER, 0)
    models = {"generator": GENERATOR}
    return Context(TASK, engine, RETRIEVER, Sampling(), seed=0, iteration=0, models=models, **options)


def prompts(count):
    return [(slot, TASK[slot]) for slot in range(count)]


# ---------------------------------------------------------------- arithmetic


def test_logits_and_their_cross_entropy_by_hand():
    q = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    d = torch.tensor([[[0.8, 0.6], [0.6, 0.8], [0.0, 1.0]]], dtype=torch.float64)
    logits = retrieval_logits(3 * q, 0.5 * d)  # lengths do not count
    assert_close(logits, torch.tensor([[16.0, 12.0, 0.0]], dtype=torch.float64))
    # log(1 + e^-4 + e^-16) = .018150, and 4 more for the second
    losses = [cross_entropy(logits, torch.tensor([label])).item() for label in (0, 1)]
    assert losses == pytest.approx([0.018150, 4.018150], abs=1e-6)


def test_weighted_loss_by_hand():
    assert token_weights(["x", " count", "=", "return", "7", "_a"]) == [5, 3, 1, 1, 1, 3]  # a keyword names nothing
    assert token_weights(["("]) == [5]
    # (2.5 + 3 + .2) / 3, not / 9
    assert weighted_loss([0.5, 1, 0.2], [5, 3, 1]) == pytest.approx(1.9)
    assert weighted_loss([0.5, 1, 0.2], [1, 1, 1]) == pytest.approx(0.566667, abs=1e-6)


def test_the_query_is_the_last_lines_that_are_not_blank():
    prompt = Prompt("toy/train/0", ({"role": "user", "content": "a\n\nb\n  \nc="},))
    assert query_of(prompt, 2) == "b\nc="


# ---------------------------------------------------------------- the stop rule


def test_what_is_ranked_below_the_stop_candidate_is_discarded():
    assert keep_above_stop([16.0, 2.0, 18.5, 12.0, 12.0]) == [2, 0]  # the last one is the stop candidate
    assert keep_above_stop([1.0, 2.0, 3.0]) == [] and keep_above_stop([3.0]) == []


def test_the_trained_retriever_gives_all_candidates_above_the_stop_candidate():
    """Against the cosine with the query of each text alone."""
    counts = []
    for episode in RetrievalAboveStop(num_candidates=5).collect(prompts(12), context()):
        query = RETRIEVER.encode({"query": query_of(episode.prompt, 20), "candidates": ["a"]})["query"]
        texts = [*episode.prompt.info["candidates"], STOP]
        ids = [RETRIEVER.encode({"query": text, "candidates": ["a"]})["query"] for text in texts]
        with torch.no_grad():
            vectors = [RETRIEVER.embed(row[None])[0] for row in (query, *ids)]
        cosine = [float(torch.cosine_similarity(vectors[0], vector, dim=0)) for vector in vectors[1:]]
        above = sorted((-value, text) for value, text in zip(cosine, texts[:-1]) if value > cosine[-1])
        assert episode.output == "\n".join(text for _, text in above)
        counts.append(len(above))
    assert min(counts) < max(counts)


# ---------------------------------------------------------------- the retriever


def test_padding_changes_no_logit():
    short = {"query": "k=", "candidates": ["a=1", "", "k=22"]}
    longer = {"query": "a longer query=", "candidates": ["b=1", "a candidate of more tokens", "x"]}
    together = RETRIEVER.logits(RETRIEVER.collate([RETRIEVER.encode(short), RETRIEVER.encode(longer)]))
    alone = [RETRIEVER.logits(RETRIEVER.collate([RETRIEVER.encode(raw)]))[0] for raw in (short, longer)]
    assert_close(together, torch.stack(alone), atol=1e-4, rtol=1e-4)
    assert (together.abs() <= 20.001).all()
    with pytest.raises(ValueError, match="give all the same number"):
        RETRIEVER.collate([RETRIEVER.encode(short), RETRIEVER.encode({**short, "candidates": ["a"]})])


def test_scoring_again_gives_the_log_probs_of_the_draws():
    episodes = Retrieval(num_candidates=4).collect(prompts(6), context(group_size=3))
    batch = collate(episodes, RETRIEVER)
    out = RETRIEVER(batch)
    assert_close(out.logprobs, batch["behavior_logprobs"], atol=1e-4, rtol=1e-4)
    assert batch["action"].shape == (18, 1) and (out.entropy > 0).all()
    with pytest.raises(ValueError, match="leave out top_k"):
        RETRIEVER.check_sampling(Sampling(top_k=2))


def test_an_embedding_is_the_mean_of_the_hidden_states():
    ids = RETRIEVER.encode({"query": "k=", "candidates": ["a"]})["query"]
    hidden = RETRIEVER.model(input_ids=ids[None]).last_hidden_state[0]
    padded = torch.cat([ids, torch.full((3,), RETRIEVER.tokenizer.pad_token_id)])
    assert_close(RETRIEVER.embed(padded[None])[0], hidden.mean(0), atol=1e-5, rtol=1e-4)


def test_the_gradient_is_that_of_query_and_candidates():
    """Along the gradient's direction the log-prob rises by its norm."""
    policy = copy.deepcopy(RETRIEVER).double()
    batch = collate(Retrieval(num_candidates=4).collect(prompts(1), context()), RETRIEVER)
    weights = [p for p in policy.parameters() if p.requires_grad]
    policy(batch).logprobs.sum().backward()
    gradient = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in weights]
    squared, values = sum(float(g.square().sum()) for g in gradient), []
    with torch.no_grad():
        for step in (1e-4, -2e-4):
            for weight, g in zip(weights, gradient):
                weight.add_(step / squared**0.5 * g)
            values.append(float(policy(batch).logprobs.sum()))
    assert (values[0] - values[1]) / 2e-4 == pytest.approx(squared**0.5, rel=1e-2)


def test_the_best_candidate_is_taken_greedily_and_others_are_drawn():
    columns = RETRIEVER.collate([RETRIEVER.encode({"query": "k=", "candidates": ["a=1", "", "k=22", "b"]})] * 200)
    logits, noise = RETRIEVER.logits(columns), Noise(list(range(200)))
    greedy = RETRIEVER.act(columns, Sampling(decode="argmax"), noise)
    assert (greedy.action[:, 0] == logits.argmax(-1)).all() and greedy.action_mask.all()
    drawn = RETRIEVER.act(columns, Sampling(temperature=20.0), noise).action[:, 0]
    assert set(drawn.tolist()) == {0, 1, 2, 3}


def test_saved_and_loaded(tmp_path):
    RETRIEVER.save_pretrained(tmp_path)
    raw = {"query": "k=", "candidates": ["a=1", "k=22"]}
    again, columns = RetrieverPolicy(path=str(tmp_path)).eval(), RETRIEVER.collate([RETRIEVER.encode(raw)])
    assert_close(again.logits(columns), RETRIEVER.logits(columns))
    with pytest.raises(ValueError, match="give `path`"):
        RetrieverPolicy()


def test_an_encoder_that_is_loaded_is_compared_with_transformers(tmp_path, monkeypatch):
    """Neither one of random weights, nor one whose weights are not there."""
    RETRIEVER.save_pretrained(tmp_path)
    checked = []
    monkeypatch.setattr(retriever, "check_rows", lambda model, *_: checked.append(model))
    small = RetrieverPolicy(config={**TINY, "hidden_size": 16})
    assert small.model.config.hidden_size == 16 and checked == []
    loaded = RetrieverPolicy(path=str(tmp_path))
    assert checked == [loaded.model]
    monkeypatch.setattr(retriever, "load_model", lambda *_: copy.deepcopy(RETRIEVER.model).to("meta"))
    RetrieverPolicy(path=str(tmp_path))
    assert checked == [loaded.model]


# ---------------------------------------------------------------- candidates and labels


def test_the_best_candidates_and_the_stop_candidate():
    (raw,) = Retrieval(num_candidates=3).rank([TASK[0]], context())
    everything = {"query": query_of(TASK[0], 20), "candidates": TASK[0].info["candidates"]}
    logits = RETRIEVER.logits(RETRIEVER.collate([RETRIEVER.encode(everything)]))[0]
    best = [TASK[0].info["candidates"][i] for i in logits.argsort(descending=True)[:2].tolist()]
    assert raw == {"query": everything["query"], "candidates": [*best, STOP]}
    assert Retrieval().rank([], context()) == []
    (wide,) = Retrieval().rank([TASK[0]], context())
    assert len(wide["candidates"]) == 5  # there are no more


def test_labels_are_the_candidates_of_least_loss():
    rollout = LabelledRetrieval(num_candidates=5)
    episodes = rollout.collect(prompts(5), context())
    for (_, prompt), episode in zip(prompts(5), episodes):
        done, losses = episode.turns[0].completion, episode.info["losses"]
        (raw,) = rollout.rank([prompt], context())
        label = int(done.action[0])
        assert episode.source == "demo" and losses[label] == min(losses) and len(losses) == 5
        assert episode.output == (raw["candidates"][label] if label < 4 else "")
        # by hand: the generator's log-probs of the two characters after candidate and code, the first one 5 times
        for place in (0, 4):
            before = raw["candidates"][place] + "\n" if place < 4 else ""
            content = before + prompt.messages[0]["content"]
            ids = GENERATOR.tokenizer(content + prompt.answer, add_special_tokens=False)["input_ids"]
            logits = GENERATOR.model(input_ids=torch.tensor([ids])).logits[0].detach().log_softmax(-1)
            ce = [-float(logits[len(ids) - 3 + k, ids[len(ids) - 2 + k]]) for k in range(2)]
            assert losses[place] == pytest.approx((5 * ce[0] + ce[1]) / 2, rel=1e-3)
    assert rollout.collect([], context()) == []


def test_a_token_of_probability_0_has_a_finite_loss(monkeypatch):
    """-log 1e-30 = 69.077553, 5 times, and 0 for the second of two tokens; without a candidate both are certain."""
    rows = [torch.tensor([0.0, 1.0]), torch.ones(2)]
    monkeypatch.setattr(labels, "answer_probabilities", lambda *_, **__: rows)
    raw = {"query": "k=", "candidates": ["a", STOP]}
    losses = LabelledRetrieval(num_candidates=2).losses(TASK[0], raw, context())
    assert losses == pytest.approx([5 * 69.077553 / 2, 0.0], rel=1e-5)


@pytest.mark.parametrize("wrong", [{"num_candidates": 1}, {"query_lines": 0}, {"stop": ""}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="need num_candidates >= 2"):
        Retrieval(**wrong)


# ---------------------------------------------------------------- repositories


def test_the_needed_line_has_the_value():
    local = 0
    for task in (TASK, TASK.on("held_out")):
        for index in range(40):
            prompt = task[index]
            *above, cursor = prompt.messages[0]["content"].splitlines()
            line = cursor + prompt.answer
            assert len(prompt.info["candidates"]) == 4
            found = line in prompt.info["candidates"]
            assert prompt.info["needed"] == (line if found else "") and (line in above) == (not found)
            local += not found
            assert task.score(scripted_episode(prompt, task.demonstrate(index))) == {"exact": 1.0}
            assert task.score(scripted_episode(prompt, "no line")) == {"exact": 0.0}
    assert 5 < local < 35  # a quarter of 80
    shown = Repository(lines=4, above=1, shown=True)
    for index in range(10):
        first = shown[index].messages[0]["content"].splitlines()[0]
        assert shown.problem(index).needed in ("", first) and shown.demonstrate(index) == shown[index].answer
    for wrong in ({"lines": 1}, {"lines": 20, "above": 7}, {"local_fraction": 1.5}):
        with pytest.raises(ValueError, match="repository"):
            Repository(**wrong)


def test_no_value_of_a_key_is_in_both_splits():
    lines = [{task.split_key(task.problem(i)) for i in range(200)} for task in (TASK, TASK.on("held_out"))]
    assert not lines[0] & lines[1]
