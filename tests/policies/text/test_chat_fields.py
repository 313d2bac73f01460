"""Calls, tools and reasoning of rows are written by the chat template and learned, or refused before the first step."""

import copy
import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen2Config, Qwen2ForCausalLM

from mmrl.core.types import Context, Sampling
from mmrl.data.checks.prompt_lengths import check_prompt_lengths
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.tiny import character_tokenizer
from mmrl.policies.text.vision import VisionLanguagePolicy
from mmrl.rollouts.offline.conversations import Conversations
from mmrl.rollouts.offline.demonstrations import Demonstrations
from mmrl.rollouts.offline.pairs import PreferencePairs
from mmrl.samples.record import SampleFormat
from tasks.dataset import DatasetTask
from tasks.preferences.task import Preferences
from tests.policies.text.test_vision import LLAVA

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
FULL = (
    "{% if tools %}<sys>{{ tools | tojson }}<end>{% endif %}{% for m in messages %}<{{ m.role }}>"
    "{% if m.name %}{{ m.name }}: {% endif %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}<call>{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}</call>{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["x"]}}}
USER = {"role": "user", "content": "q"}


def say(content="a", **fields):
    return {"role": "assistant", "content": content, **fields}


def call(x):
    return {"type": "function", "function": {"name": "f", "arguments": json.dumps({"x": x})}}


def build(folder, template):
    tokenizer = character_tokenizer(extra=("<sys>", "<user>", "<assistant>", "<tool>", "<end>"))
    tokenizer.chat_template, tokenizer.eos_token = template, "<end>"
    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    ids = dict(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    Qwen2ForCausalLM(Qwen2Config(**sizes, **ids, num_key_value_heads=2)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return TextPolicy(path=str(folder))


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return build(tmp_path_factory.mktemp("full"), FULL)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return build(tmp_path_factory.mktemp("plain"), PLAIN)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def talks(path, count=4, **columns):
    """Conversations with a call, its result and an answer with a reason."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"{i}?"},
                say("", tool_calls=[call(i)]),
                {"role": "tool", "content": f"r{i}", "tool_call_id": "c"},
                say(str(i), reasoning_content=f"it said {i}"),
            ],
            "tools": [TOOL],
            **columns,
        }
        for i in range(count)
    ]
    return DatasetTask(write(path, rows), format="conversations"), rows


def context(task, policy):
    return Context(task, None, policy, Sampling(), seed=0, iteration=0)


def read_back(completion):
    """Ids of the row, and the text that is learned."""
    ids = torch.cat([completion.observation["input_ids"], completion.action]).tolist()
    return ids, completion.action[completion.action_mask].tolist()


def test_rows_with_calls_are_those_of_the_template(full, tmp_path):
    task, rows = talks(tmp_path / "a.jsonl")
    check_prompt_lengths(task, full, 8, imitated=True)
    for rollout, learned in ((Conversations(), 2), (Demonstrations(), 1)):
        (episode,) = rollout.collect([(0, task[0])], context(task, full))
        (row,) = (row for row in rows if row["messages"][0] == task[0].messages[0])
        number = row["messages"][0]["content"][0]
        row["messages"][1]["tool_calls"] = [{"function": {"name": "f", "arguments": {"x": int(number)}}}]
        whole = full.tokenizer.apply_chat_template(row["messages"], tools=[TOOL])["input_ids"]
        ids, choices = read_back(episode.turns[0].completion)
        assert ids == whole
        said = [f'<call>f{{"x": {number}}}</call><end>', f"<think>it said {number}</think>{number}<end>"]
        assert full.tokenizer.decode(choices) == "".join(said[-learned:])
    assert task.score(episode)["exact"] == 1
    (shown,) = SampleFormat(full).describe_prompt(episode)["messages"]
    assert "<call>f{" in shown["content"] and '"required"' in shown["content"]


def test_pairs_with_calls_are_those_of_the_template(full, tmp_path):
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{i}?"}],
            "chosen": [say("", tool_calls=[call(i)])],
            "rejected": [say(f"{i}", reasoning_content="no call")],
            "tools": json.dumps([TOOL]),
        }
        for i in range(4)
    ]
    task = Preferences(write(tmp_path / "a.jsonl", rows))
    check_prompt_lengths(task, full, 8, imitated=True)
    number = task[0].messages[0]["content"][0]
    episodes = PreferencePairs().collect([(0, task[0])], context(task, full))
    texts = [full.tokenizer.decode(read_back(episode.turns[0].completion)[0]) for episode in episodes]
    start = f"<sys>{json.dumps([TOOL])}<end><user>{number}?<end><assistant>"
    assert [text.replace(start, "") for text in texts] == [
        f'<call>f{{"x": {number}}}</call><end>',
        f"<think>no call</think>{number}<end>",
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [USER, say()], "tools": [TOOL]}, r"a\.jsonl:1: .*does not write the tools of the prompt"),
        (
            {"messages": [USER, say(reasoning_content="b")]},
            r"a\.jsonl:1: .*'reasoning_content' of a message of role 'as",
        ),
        ({"messages": [USER, say("", tool_calls=[call(1)])]}, r"a\.jsonl:1: .*does not write 'tool_calls'"),
        ({"messages": [{**USER, "name": "Ann"}, say()]}, r"a\.jsonl:1: .*'name' of a message of role 'user'"),
        (
            {"messages": [USER, say("", tool_calls=[call(1)]), USER, say()]},
            r"a\.jsonl:1: .*does not write 'tool_calls'",
        ),
    ],
)
def test_what_the_template_leaves_out_is_refused_by_row(full, plain, tmp_path, row, message):
    rows = [{**row, "messages": [{"role": "system", "content": str(i)}, *row["messages"]]} for i in range(3)]
    task = DatasetTask(
        write(tmp_path / "a.jsonl", rows),
        format="conversations",
        held_out_column="messages",
        held_out_values=[str(rows[-1]["messages"])],
    )
    with pytest.raises(ValueError, match=message):
        check_prompt_lengths(task, plain, 8, imitated=True)
    check_prompt_lengths(task, full, 8, imitated=True)


def test_policies_without_a_template_refuse_fields(tmp_path):
    policy = TextPolicy(
        config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
        }
    )
    policy.processor.chat_template = None
    with pytest.raises(ValueError, match="has no chat template, so 'tool_calls' of a message"):
        policy.prompt_text([USER, say("", tool_calls=[call(1)]), USER])
    with pytest.raises(ValueError, match="so tools would not be written"):
        policy.prompt_text([USER], [TOOL])


def test_a_template_that_refuses_the_messages_names_the_row(plain, tmp_path):
    policy = build(
        tmp_path / "strict",
        PLAIN + "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
    )
    rows = [{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": str(i)}]} for i in range(3)]
    task = DatasetTask(write(tmp_path / "a.jsonl", rows), format="prompts")
    with pytest.raises(ValueError, match=r"a\.jsonl:\d: .*cannot render this conversation \(no system\)"):
        check_prompt_lengths(task, policy, 8)


def test_the_tag_that_a_template_opens(plain, tmp_path):
    opened = PLAIN.replace("<assistant>{% endif %}", "<assistant><think>\n{% endif %}")
    assert build(tmp_path / "opened", opened).opened_tag == "<think>\n"
    closed = PLAIN.replace("<assistant>{% endif %}", "<assistant><think>\n\n</think>\n\n{% endif %}")
    assert build(tmp_path / "closed", closed).opened_tag == plain.opened_tag == ""


def test_the_mark_of_an_image_without_an_image_is_refused_by_row(tmp_path):
    """The model's own token would be read as an image that is not there."""
    policy = VisionLanguagePolicy(config=copy.deepcopy(LLAVA))
    assert policy.reserved_texts == ("<image>",)
    rows = [{"prompt": f"{i}?", "solution": "a"} for i in range(4)]
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    for odd in ({"prompt": "What is in <image>?"}, {"solution": "<image>"}):
        task = DatasetTask(write(tmp_path / "a.jsonl", [*rows, {**rows[0], "prompt": "x", **odd}]), format="trl")
        with pytest.raises(ValueError, match=r"a\.jsonl:5: a text holds '<image>', which stands for an image"):
            for split in ("train", "held_out"):
                check_prompt_lengths(task.on(split), policy, 8)
    shown = [{**row, "prompt": f"{row['prompt']} <image>", "images": ["a.png"]} for row in rows]
    task = DatasetTask(write(tmp_path / "b.jsonl", shown), format="trl")
    check_prompt_lengths(task, policy, 8)
    assert task[0].messages[0]["content"][1:] == [{"type": "image"}]
