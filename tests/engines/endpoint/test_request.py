"""Requests are read into what templates take, or refused by the name of the field."""

import json

import pytest

from mmrl.core.types import Sampling
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.messages import message_key, read_messages
from mmrl.engines.endpoint.request import read_request
from mmrl.tools.call_parser import ToolCall
from mmrl.tools.chat_parser import HermesParser, LlamaParser, MistralParser

ASK = [{"role": "user", "content": "a"}]


def read(**fields):
    return read_request(json.dumps({"model": "policy", "messages": ASK, **fields}), str)


def test_fields_that_change_nothing_are_taken_with_that_value_alone():
    neutral = {
        "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "parallel_tool_calls": True, "store": False,
        "response_format": {"type": "text"}, "user": "me", "metadata": {"a": "b"}, "audio": None,
    }  # fmt: skip
    assert read(**neutral) == read()
    for name, value in {"frequency_penalty": True, "store": True, "response_format": {"type": "json_object"}}.items():
        with pytest.raises(RequestError, match=name) as caught:
            read(**{name: value})
        assert caught.value.param == name and caught.value.status == 400


def test_penalties_are_refused_by_name():
    """The learner computes no counts of earlier tokens again; with 0 the two of OpenAI change nothing."""
    for name in ("repetition_penalty", "frequency_penalty", "presence_penalty"):
        with pytest.raises(RequestError, match=f"{name}.*leave it out") as caught:
            read(**{name: 1.1})
        assert caught.value.param == name and caught.value.status == 400


def test_sampling_parameters():
    default = Sampling(max_tokens=16, stop=("!",), top_k=5)
    merged = read(temperature=0.5, top_p=0.9, stop="?", max_completion_tokens=99).merge_sampling(default)
    assert merged == Sampling(temperature=0.5, top_p=0.9, top_k=5, max_tokens=16, stop=("!", "?"))
    assert read(max_tokens=99).merge_sampling(default, 50).max_tokens == 50
    assert read(temperature=0).merge_sampling(default).decode == "argmax"
    assert read(temperature=1).merge_sampling(Sampling(decode="argmax")).decode == "sample"
    assert read().merge_sampling(Sampling(decode="argmax", stop=[])) == Sampling(decode="argmax")
    with pytest.raises(RequestError, match="regex"):
        read(stop="a").merge_sampling(Sampling(regex="a+"))


def test_messages_are_those_of_templates():
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = read_messages(
        [
            {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief<end>"}]},
            {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
        lambda text: text.replace("<end>", "< end>"),
    )
    assert messages == [
        {"role": "system", "content": "be brief< end>"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "2", "name": "add", "tool_call_id": "c1"},
    ]  # fmt: skip
    for arguments in ("{", "[1]", 3):
        with pytest.raises(RequestError, match="must be the JSON text of an object"):
            bad = {**call, "function": {"name": "add", "arguments": arguments}}
            read_messages([{"role": "assistant", "tool_calls": [bad]}], str)


def test_equal_messages_have_equal_keys_whatever_ids_and_spaces_are():
    def say(**fields):
        call = {"id": "x", "function": {"name": "f", "arguments": '{"a":1,"b":2}'}, **fields}
        return message_key(read_messages([{"role": "assistant", "content": "", "tool_calls": [call]}], str)[0])

    assert say() == say(id="y") == say(function={"name": "f", "arguments": '{"b": 2, "a": 1}'})
    assert say() != say(function={"name": "f", "arguments": '{"a": 1}'})
    assert say() != say(function={"name": "g", "arguments": '{"a":1,"b":2}'})


@pytest.mark.parametrize("parser", [HermesParser(), LlamaParser(), MistralParser()])
def test_written_calls_are_read_again(parser):
    calls = [ToolCall("f", {"a": "ü", "b": [1]}), ToolCall("g", {})][: 1 if isinstance(parser, LlamaParser) else 2]
    text = parser.write_calls(calls)
    assert parser.parse(text, {}) == calls and parser.read_content(text) == ""
    if not isinstance(parser, LlamaParser):
        assert parser.read_content(f"<think>{text}</think>so\n{text}") == f"<think>{text}</think>so"
