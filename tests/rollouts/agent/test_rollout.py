"""Agents: ids and log-probs are those that were sampled, the gradient is that of the built-in rollout, errors count."""

import json
import threading

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.types import Sampling
from mmrl.data.collate import collate
from mmrl.data.collector import episode_metrics
from mmrl.objectives.objective import Objective
from mmrl.objectives.policy import ClippedSurrogate
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.returned import ReturnedReward
from mmrl.rewards.scoring import score
from mmrl.rollouts.agent.rollout import AgentRollout
from mmrl.rollouts.text.tools import ToolUse
from mmrl.tools.base import Tool
from mmrl.tools.chat_parser import HermesParser
from tests.rollouts.agent import agents
from tests.rollouts.agent.policies import TOOL, Questions, Steered, build_context, save_checkpoint

AGENTS = "tests.rollouts.agent.agents"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("agent"))


@pytest.fixture(scope="module")
def policy(folder):
    return TextPolicy(path=str(folder)).eval()


def play(policy, agent, rows, engine=None, group_size=1, rollout=None, **options):
    rollout = AgentRollout(f"{AGENTS}:{agent}", **(rollout or {}))
    ctx = build_context(policy, engine or Steered(0.5), group_size, **options)
    task = Questions()
    agents.RECEIVED.clear()
    episodes = rollout.collect([(slot, task[slot]) for slot in range(rows)], ctx)
    return episodes


def test_200_conversations_are_recorded_as_they_were_sampled(policy, folder):
    """Several turns, calls, choices and branches: ids, log-probs and contexts against plain transformers."""
    engine = Steered(0.6)
    episodes = play(policy, "wander", 200, engine)
    assert [episode.ended for episode in episodes if episode.ended == "error"] == []
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    replies, turns, shared, contexts = 0, 0, 0, 0
    exact = {}  # log-probs of a row's choices by plain transformers
    received = {number: choices for (number, _), choices in agents.RECEIVED.items()}
    for episode in episodes:
        choices = received[episode.prompt.info["number"]]
        spans = []
        for turn in episode.turns:
            done = turn.completion
            context, ids, mask = done.observation["input_ids"], done.action, done.action_mask
            # what the policy chose is drawn once: the choices of a row are its sampled turns
            edges = torch.cat([torch.tensor([0]), mask.int(), torch.tensor([0])]).diff()
            starts, ends = (edges == 1).nonzero().flatten(), (edges == -1).nonzero().flatten()
            whole = torch.cat([context, ids])
            with torch.no_grad():
                logprobs = plain(whole[None]).logits[0].log_softmax(-1)
            expected = logprobs[len(context) - 1 : -1].gather(-1, ids[:, None])[:, 0]
            exact[id(turn)] = expected[mask]
            for start, end in zip(starts.tolist(), ends.tolist()):
                part = slice(start, end)
                behavior = done.behavior_logprobs[part]
                spans.append((ids[part].tolist(), behavior.tolist(), whole[: len(context) + start].tolist()))
                if behavior.any():  # sampled by the engine, not written by the test
                    assert_close(behavior, expected[part], atol=1e-4, rtol=0)
                    shared += 1
            turns += len(starts)
        assert len(spans) == len(choices) == episode.info["turns"]
        for entry in choices:
            ids, before = take(spans, entry["choice"], policy)
            check_reply(entry["choice"]["message"], ids, policy)
            if all(is_plain(message) for message in entry["messages"]):
                expected = policy.prompt_text(entry["messages"], entry["tools"])
                assert policy.tokenizer.decode(before) == expected
                contexts += 1
            replies += 1
    scored = policy(batch := collate(episodes[:60], policy)).logprobs  # as the learner scores them
    for number, turn in enumerate(turn for episode in episodes[:60] for turn in episode.turns):
        assert_close(scored[number][batch["action_mask"][number]], exact[id(turn)], atol=1e-4, rtol=0)
    assert replies == turns and shared > 150 and contexts > 150
    metrics = episode_metrics([episode.light() for episode in episodes], len(episodes), turns)
    assert metrics["rollout/agent/calls"] == replies
    assert metrics["rollout/agent/drift_calls"] > 50 and metrics["rollout/agent/drift_tokens"] > 200
    assert metrics["rollout/agent/rows"] < replies and max(engine.batches) > 50


def take(spans, choice, policy):
    """Remove the sampled turn that a choice is from the list, by its tokens; return its ids and those before them."""
    tokens = choice["logprobs"]["content"]
    texts, logprobs = [each["token"] for each in tokens], [each["logprob"] for each in tokens]
    matching = next(span for span in spans if span[1] == logprobs and policy.token_texts(span[0]) == texts)
    spans.remove(matching)
    return matching[0], matching[2]


def check_reply(message, ids, policy):
    """The ids decode to what the client received: a content, or a content and calls."""
    if "tool_calls" not in message:
        assert message["content"] in (policy.decode(ids), policy.turn_text(ids))
        return
    head, *parts = policy.turn_text(ids).split("<tool_call>\n")
    assert head.strip() == (message["content"] or "")
    calls = [json.loads(part.partition("\n</tool_call>")[0]) for part in parts]
    functions = [call["function"] for call in message["tool_calls"]]
    assert calls == [{"name": each["name"], "arguments": json.loads(each["arguments"])} for each in functions]


def is_plain(message):
    """Whether a message is written as it is: without calls, and without what decoding or cleaning changes."""
    text = str(message.get("content") or "")
    return "tool_calls" not in message and not any(mark in text for mark in ("\ufffd", "<|", "<pad>"))


def gradient(policy, episodes):
    """Gradient of one iteration of GRPO on the rows of episodes, by the parts of the training loop."""
    score([e for e in episodes], Questions(), ReturnedReward())
    batch = collate(episodes, policy)
    ctx = build_context(policy, Steered(0.0), 4)
    batch = batch.with_columns(old_logprobs=policy(batch).logprobs.detach())
    batch = GroupAdvantage()(batch, ctx)
    batch = batch.with_columns(loss_weights=TokenMean()(batch, lambda total: total))
    objective = Objective({"policy": ClippedSurrogate()})
    policy.zero_grad()
    loss, _ = objective(policy(batch), batch)
    loss.backward()
    return [parameter.grad.clone() for parameter in policy.parameters() if parameter.grad is not None], batch


class Add(Tool):
    """Adds, as the agents do."""

    def run(self, a: int, b: int) -> str:
        """
        Add two numbers.

        Args:
            a: first.
            b: second.
        """
        return str(a + b)


def test_the_gradient_is_that_of_the_built_in_rollout(policy, monkeypatch):
    """The same conversations, turn by turn with tools: equal draws, equal rows, equal gradients."""
    built_in = ToolUse({"add": Add()}, HermesParser(), max_turns=4)
    monkeypatch.setattr(built_in, "schemas", [TOOL])
    ctx, task = build_context(policy, Steered(0.7), 4), Questions()
    expected = built_in.collect([(slot, task[slot]) for slot in range(6)], ctx)
    episodes = play(policy, "loop", 6, Steered(0.7), 4)
    several = 0
    for one, other in zip(episodes, expected):
        [row], [same] = ([turn.completion for turn in each.turns] for each in (one, other))
        length = len(row.action)  # the agent stops after four turns, and the rollout after four calls
        assert torch.equal(row.action, same.action[:length]) and torch.equal(row.action_mask, same.action_mask[:length])
        assert torch.equal(row.observation["input_ids"], same.observation["input_ids"])
        several += one.info["turns"] > 1
        other.info["agent"], other.turns, other.ended = one.info["agent"], other.turns, one.ended
    assert several > 6
    full = [
        number for number, episode in enumerate(expected) if episode.info["turns"] == episodes[number].info["turns"]
    ]
    grads, batch = gradient(policy, [episodes[i] for i in full])
    same_grads, same_batch = gradient(policy, [expected[i] for i in full])
    assert batch["advantages"].abs().sum() > 1
    assert torch.equal(batch["advantages"], same_batch["advantages"])
    for one, other in zip(grads, same_grads):
        assert_close(one, other, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("agent", ["wander", "gather"])
def test_the_same_seed_gives_the_same_bits(policy, agent):
    runs = [play(policy, agent, 12, Steered(0.4), 2, rollout={"max_concurrent": 5, "window_s": 0.05}) for _ in range(2)]
    other = play(policy, agent, 12, Steered(0.4), 2, seed=1)
    for one, same in zip(*runs):
        assert one.info == same.info and len(one.turns) == len(same.turns)
        rows = [
            sorted((t.completion for t in e.turns), key=lambda c: c.observation["input_ids"].tolist())
            for e in (one, same)
        ]
        for row, twin in zip(*rows):
            assert torch.equal(row.action, twin.action) and torch.equal(row.behavior_logprobs, twin.behavior_logprobs)
    assert any(a.output != b.output for a, b in zip(runs[0], other))


def test_failures_are_counted_errors_and_the_run_goes_on(policy, caplog):
    options = {"timeout_s": 0.5, "max_failed": 1.0}
    threads = set(threading.enumerate())
    episodes = play(policy, "fail", 12, rollout=options)
    assert not set(threading.enumerate()) - threads
    reasons = {e.prompt.info["number"]: e.info.get("error") for e in episodes}
    assert [number for number, reason in reasons.items() if reason is None] == [0, 9, 10, 11]
    for number, reason in {
        1: "raised KeyError: 'lost'", 2: "took longer than rollout.timeout_s=0.5 s", 3: "returned 'good'",
        4: "without a call", 5: "a call cannot be enforced", 6: "frequency_penalty=1.0 is not supported",
        7: "not all are finite", 8: "has to return a number",
    }.items():  # fmt: skip
        assert reason in reasons[number], number
    metrics = episode_metrics([episode.light() for episode in episodes], 4, 4)
    counts = {name.rpartition("/")[2]: value for name, value in metrics.items() if "/agent/" in name}
    assert counts["raised"] == 2 and counts["timed_out"] == counts["no_call"] == counts["refused"] == 1
    assert counts["no_reward"] == 3 and metrics["rollout/errors"] == 8
    assert "further episodes of the agent failed" in caplog.text
    score(episodes, Questions(), ReturnedReward())
    assert [e.reward for e in episodes] == [1.0, *[0.0] * 8, 1.0, 1.0, 1.0]
    with pytest.raises(RuntimeError, match=r"more than rollout\.max_failed=0\.1"):
        play(policy, "fail", 12, rollout={**options, "max_failed": 0.1})
    assert not set(threading.enumerate()) - threads


def test_an_async_agent_that_hangs_is_cancelled(policy):
    threads = set(threading.enumerate())
    episodes = play(policy, "sleep", 4, rollout={"timeout_s": 0.3})
    assert [episode.ended == "error" for episode in episodes] == [True, False, False, False]
    assert not set(threading.enumerate()) - threads


def test_drift_above_the_limit_is_refused(policy):
    episodes = play(policy, "loop", 12, Steered(0.8), rollout={"max_drift": 0.0, "max_failed": 1.0})
    refused = [episode for episode in episodes if episode.ended == "error"]
    assert refused and all("tokenising this history again changes" in episode.info["error"] for episode in refused)
    assert all(episode.info["counts"]["agent/drift_calls"] == 0 for episode in episodes if episode not in refused)


def test_arguments_are_checked():
    for options, reason in (
        ({"agent": ""}, r"rollout\.agent is empty"),
        ({"agent": f"{AGENTS}:lop"}, "did you mean 'loop'"),
        ({"agent": f"{AGENTS}:loop", "max_drift": 2}, r"rollout\.max_drift must be in \[0, 1\]"),
        ({"agent": f"{AGENTS}:loop", "timeout_s": 0}, r"rollout\.timeout_s must be > 0"),
    ):
        with pytest.raises(ValueError, match=reason):
            AgentRollout(**options)
    rollout = AgentRollout("tests.rollouts.agent.policies:build_context")
    with pytest.raises(ValueError, match="it has a parameter 'policy', and 'questions/train/0' has no such column"):
        rollout.check_task(Questions())


def test_a_greedy_request_is_refused_in_training_alone(policy):
    greedy = Sampling(max_tokens=4, decode="argmax")
    first, second = (play(policy, "loop", 3, Steered(0.0), purpose="eval", sampling=greedy, seed=s) for s in (0, 1))
    assert [e.output for e in first] == [e.output for e in second]
    one, *_ = play(policy, "ask_greedily", 1, rollout={"max_failed": 1.0})
    assert "is no draw from the policy" in one.info["error"] and one.info["counts"]["agent/refused"] == 1
    [one] = play(policy, "ask_greedily", 1, Steered(0.0), purpose="eval")
    assert one.ended != "error"
