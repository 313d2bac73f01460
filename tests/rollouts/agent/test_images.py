"""Images in requests: pixels, ids and log-probs are those of the prompt itself; what cannot be read is refused."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import mmrl
from mmrl.api.serve import ServeRequest, _build_policy_server
from mmrl.core.types import Sampling
from mmrl.data.collate import collate
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.images import read_image, write_data_url, write_image_parts
from mmrl.engines.endpoint.messages import read_messages
from mmrl.engines.endpoint.thread import ServerThread
from mmrl.media import images
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rollouts.agent.rollout import AgentRollout
from tests.checkpoints import qwen2_5_vl
from tests.policies.text.oracle import TINY, decided, plain_logits
from tests.policies.text.test_vision import LLAVA
from tests.rollouts.agent import agents
from tests.rollouts.agent.pictures import Pictures
from tests.rollouts.agent.policies import Steered, build_context
from tests.tiny_recipes import QUIET

TURNS = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}<eos>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""Turns with an end, so that a conversation is one row; the template of the other policy has none."""
QUESTION = ({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "which?"}]},)
PICTURE = ({"role": "user", "content": [{"type": "image"}]},)


@pytest.fixture(scope="module", params=["llava", "qwen2_5_vl"])
def policy(request, tmp_path_factory):
    torch.manual_seed(0)
    if request.param == "llava":
        llava = decided(VisionLanguagePolicy(config=LLAVA)).eval()
        llava.processor.chat_template = TURNS
        return llava
    return decided(VisionLanguagePolicy(path=str(qwen2_5_vl(tmp_path_factory.mktemp("qwen"))))).eval()


def play(policy, agent, rows, **options):
    rollout = AgentRollout(f"tests.rollouts.agent.agents:{agent}", **options)
    ctx = build_context(policy, Steered(0.0), 2, sampling=Sampling(max_tokens=8))
    task = Pictures()
    return rollout.collect([(slot, task[slot]) for slot in range(rows)], ctx), ctx


def check_logprobs(policy, episodes):
    """Log-probs of the engine and of the learner against transformers' model on each row alone."""
    scored = policy(batch := collate(episodes, policy)).logprobs
    for number, turn in enumerate(turn for episode in episodes for turn in episode.turns):
        done = turn.completion
        expected = plain_logits(policy, done).log_softmax(-1).gather(-1, done.action[:, None])[:, 0]
        assert_close(done.behavior_logprobs[done.action_mask], expected[done.action_mask], atol=1e-4, rtol=0)
        assert_close(scored[number][batch["action_mask"][number]], expected[done.action_mask], atol=1e-4, rtol=0)


def test_an_image_in_a_request_is_the_image_of_the_row(policy):
    """What the agent sends back is the prompt: ids and pixels equal what the policy encodes of the row itself."""
    episodes, _ = play(policy, "look", 8)
    assert [episode.info.get("error") for episode in episodes] == [None] * 16
    for episode in episodes:
        expected = policy.encode(episode.prompt.observation)
        first = episode.turns[0].completion.observation
        assert first.keys() == expected.keys() and ("pixel_values" in first) == bool(episode.prompt.images)
        assert all(torch.equal(first[name], expected[name]) for name in first)
        in_turns = policy.processor.chat_template == TURNS
        assert episode.info["counts"]["agent/rows"] == (1 if in_turns else 2)
        assert episode.info["counts"]["agent/rewritten"] == (0 if in_turns else 1)
    check_logprobs(policy, episodes)


def test_an_image_after_a_reply_begins_a_row_with_all_images(policy):
    episodes, _ = play(policy, "look_twice", 4)
    for episode in episodes:
        first, second = (turn.completion for turn in episode.turns)
        shown = np.full((28, 28, 3), 10 * episode.prompt.info["number"], dtype=np.uint8)
        pixels = policy.encode({"messages": PICTURE, "images": (shown,)})["pixel_values"]
        earlier = first.observation.get("pixel_values", pixels[:0])
        assert torch.equal(second.observation["pixel_values"], torch.cat([earlier, pixels]))
        text = policy.decode(second.observation["input_ids"].tolist())
        assert "which?" in text and policy.decode(first.action.tolist()) in text and "this? " in text
        assert episode.info["counts"]["agent/image_rows"] == 1 and episode.info["counts"]["agent/rows"] == 2
    check_logprobs(policy, episodes)


def url(width, height, kind="PNG", mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def part(address, **further):
    return {"type": "image_url", "image_url": {"url": address, **further}}


@pytest.mark.parametrize(
    "content, reason",
    [
        (part("http://127.0.0.1:1/a.png"), "'http://127.0.0.1:1/a.png' is not fetched"),
        (part("file:///etc/passwd"), "is not fetched"),
        (part("data:text/plain;base64,aaaa"), "is not fetched"),
        (part("data:image/png,aaaa"), "is not fetched"),
        (part("data:image/png;base64,a-b"), "is no base64"),
        (part("data:image/png;base64,aaaa"), "cannot be decoded"),
        (part(url(8, 8)[:-40] + "="), "cannot be decoded|is no base64"),
        (part(url(2049, 2048)), "2049 x 2048 pixels has more than 4194304 pixels"),
        (part(url(2, 300)), "a side 100 times as long"),
        (part(url(8, 8), detail="high"), "detail='high' is not supported"),
        (part(url(8, 8), size=3), "got \\['size'\\]"),
        ({"type": "image_url", "image_url": 3}, "got int"),
        ({"type": "image_url"}, "got NoneType"),
    ],
)
def test_what_is_no_image_here_is_refused_by_its_message(content, reason, monkeypatch):
    with pytest.raises(RequestError, match=reason) as caught:
        read_image(content, "messages[3]")
    assert caught.value.param == "messages[3]" and str(caught.value).startswith("messages[3].content: ")


def test_bytes_and_numbers_of_images_are_bounded(monkeypatch):
    monkeypatch.setattr(images, "MOST_BYTES", 2000)
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    with pytest.raises(RequestError, match="an image has more than"):
        read_image(part(write_data_url(noise)), "messages[0]")
    many = [{"role": "user", "content": [part(url(8, 8))] * 17}] * 2
    with pytest.raises(RequestError, match="the messages have 34 images, at most 32"):
        read_messages(many, str)
    with pytest.raises(RequestError, match=r"messages\[0\]: images belong to messages of the user"):
        read_messages([{"role": "system", "content": [part(url(8, 8))]}], str)


def test_every_format_is_read_as_pillow_reads_it():
    noise = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    assert np.array_equal(read_image(part(write_data_url(noise)), "").pixels, noise)
    assert read_image(part(url(3, 5, "JPEG", "L")), "").pixels.shape == (5, 3, 3)
    assert read_image(part(url(3, 5, "PNG", "RGBA")), "") == read_image(part(url(3, 5)), "")
    assert read_image(part(url(3, 5)), "") != read_image(part(url(5, 3)), "")


def test_a_text_policy_refuses_images_by_name():
    episodes, _ = play(TextPolicy(config=dict(TINY)), "look", 2, max_failed=1.0)
    reasons = [episode.info.get("error", "") for episode in episodes]
    assert reasons[:2] == ["", ""] and all(
        "TextPolicy cannot see, but the prompt has 1 image(s)" in each for each in reasons[2:]
    )


def test_a_run_of_a_vision_policy_learns_with_images_and_is_served_with_them(tmp_path, capsys):
    run = tmp_path / "run"
    result = mmrl.fit(
        *("recipe=grpo", "setting=digits_vlm", "rollout=agent", "rollout.agent=tests.rollouts.agent.agents:look"),
        *("evaluation=agent", "data.evaluation.count=2"),
        *("data.num_prompts=2", "data.group_size=2", "data.num_minibatches=1", "sampling.max_tokens=4"),
        *("trainer.max_epochs=1", "logger=csv", *(word for word in QUIET if "logger" not in word)),
        run_dir=str(run),
    )
    metrics = result.last_metrics
    assert metrics["rollout/agent/calls"] == 8 and metrics["rollout/errors"] == 0
    assert "nothing was learned" not in capsys.readouterr().out
    loaded = mmrl.load_policy(str(run))
    shown = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    body = {"model": "policy", "messages": write_image_parts(QUESTION, (shown,)), "max_tokens": 6, "temperature": 0}
    with ServerThread(_build_policy_server(ServeRequest(str(run)))) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        choice = agents.ask(url, "", **body, logprobs=True)["choices"][0]
        with pytest.raises(RuntimeError, match=r"messages\[0\]"):
            agents.ask(
                url, "", **{**body, "messages": [{"role": "user", "content": [part("https://a.example/b.png")]}]}
            )
    assert choice["message"]["content"] == loaded.generate("which?", images=[shown], max_tokens=6, temperature=0)
    assert len(choice["logprobs"]["content"]) == 6
