"""Agents whose calls vLLM answers: what is recorded is what was sent, with the log-probs of plain layers."""

import pytest
from torch.testing import assert_close

from mmrl.core.types import Sampling
from mmrl.data.collate import collate
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.rollouts.agent.rollout import AgentRollout
from tests.engines.vllm.policies import moved, policy
from tests.policies.text.oracle import plain_logits
from tests.rollouts.agent import agents
from tests.rollouts.agent.pictures import Pictures
from tests.rollouts.agent.policies import Questions, build_context

pytestmark = pytest.mark.vllm
TURNS = (
    "{% for message in messages %}{{ message['role'] }}: {% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<eos>{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
"""Turns with an end, so that a conversation is one row."""


@pytest.mark.parametrize("kind, task", [("qwen2", Questions()), ("qwen2_5_vl", Pictures())])
def test_replies_of_vllm_are_recorded_exactly(kind, task, tmp_path):
    model = policy(kind, tmp_path)
    model.processor.chat_template = TURNS
    engine = VllmEngine(InProcess(cache_gib=0.25))
    engine.sync(model, 0)
    moved(model, 1.1)  # the replies are those of weights that came by a transfer
    ctx = build_context(model, engine, 2, sampling=Sampling(max_tokens=6))
    rollout = AgentRollout("tests.rollouts.agent.agents:chat", max_failed=0.0)
    agents.RECEIVED.clear()
    try:
        episodes = rollout.collect([(slot, task[slot]) for slot in range(6)], ctx)
    finally:
        engine.close()
    assert [episode.ended for episode in episodes].count("error") == 0
    replies = [choice for received in agents.RECEIVED.values() for choice in received]
    spans = [span for episode in episodes for turn in episode.turns for span in sampled(turn.completion)]
    # every reply is one span of sampled tokens, and every span was sent
    texts = [(model.token_texts(ids), logprobs) for ids, logprobs in spans]
    for reply in replies:
        tokens = reply["choice"]["logprobs"]["content"]
        texts.remove(([each["token"] for each in tokens], [each["logprob"] for each in tokens]))
    assert not texts and len(replies) == 36
    assert {episode.info["counts"]["agent/rows"] for episode in episodes} == {1}
    scored = model(batch := collate(episodes, model)).logprobs
    for number, episode in enumerate(episodes):
        done = episode.turns[0].completion
        expected = plain_logits(model, done).log_softmax(-1).gather(-1, done.action[:, None])[:, 0][done.action_mask]
        assert_close(done.behavior_logprobs[done.action_mask], expected, atol=1e-4, rtol=0)
        assert_close(scored[number][batch["action_mask"][number]], expected, atol=1e-4, rtol=0)


def sampled(done):
    """The sampled spans of a row: ids and log-probs."""
    spans, before = [], False
    for token, logprob, chosen in zip(done.action.tolist(), done.behavior_logprobs.tolist(), done.action_mask.tolist()):
        if chosen and not before:
            spans.append(([], []))
        if chosen:
            spans[-1][0].append(token)
            spans[-1][1].append(logprob)
        before = chosen
    return spans
