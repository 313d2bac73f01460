"""Bombs for what reads answers before or beside a task: extractors, parsers of calls, rewards of texts, steps."""

import contextlib
import re
from collections.abc import Callable

import pytest

from mmrl.core.rng import derive_rng
from mmrl.rewards.extract import EXTRACTORS, LONGEST_ANSWER, build_extractor, remove_thoughts
from mmrl.rewards.shaping import repetition_penalty, tag_format
from mmrl.rewards.steps import split_steps
from mmrl.tools.call_parser import TagParser, ToolError
from mmrl.tools.chat_parser import HermesParser, LlamaParser, MistralParser
from tasks.wiki.verify import normalise, verify
from tests.laws.bombs import BOMBS
from tests.times import fits

SECONDS = 1.0  # of processor time for a bomb

READERS: dict[str, Callable[[str], object]] = {
    **{name: build_extractor(name) for name in EXTRACTORS},
    "thoughts": remove_thoughts,
    "tag_format": tag_format,
    "repetition_penalty": repetition_penalty,
    "split_steps": split_steps,
    "hermes": lambda text: HermesParser().parse(text, {}),
    "llama": lambda text: LlamaParser().parse(text, {}),
    "mistral": lambda text: MistralParser().parse(text, {}),
    "search tags": lambda text: TagParser().parse(text, {"search": None}),  # type: ignore[dict-item]
}
UNITS = [
    *("a", "1", " ", "\n", "\t", "(", "[", "{", "}", "\\boxed{", "\\fbox", "<answer>", "</answer>", "<think>"),
    *("</think>", "<tool_call>", "</tool_call>", "```", "```\n", "```a\n", "####", "**", "answer", "answer ", "is "),
    *("option ", "(A", "A\n", ".", "1,", "1,111", "1.", "1/", "-", "^", "'", '{"answer":', "\\\\", "[TOOL_CALLS]"),
    *("[ARGS]", "<|python_tag|>", "<search>", "</search>", "²", "</think><answer>"),
]
"""Pieces of which many stand in a row: a pattern that is read again from each of them takes a time that grows with the
square of their number."""


@pytest.mark.parametrize("reader", READERS)
def test_texts_of_all_kinds_are_read_within_a_second(reader):
    def read(text: str) -> None:
        with contextlib.suppress(ToolError):
            READERS[reader](text)

    row = [start + unit * (40_000 // len(unit)) + "x" for unit in UNITS for start in ("", "```answer")]
    for text in [*BOMBS.values(), *row]:
        assert fits(lambda text=text: read(text), SECONDS), text[:60]


def test_the_end_of_a_long_answer_is_read_and_its_thoughts_are_not():
    extract = build_extractor("last_number")
    assert extract("12 " + "x " * LONGEST_ANSWER) is None and extract("x " * LONGEST_ANSWER + "12") == "12"
    assert extract("<think>" + "x " * LONGEST_ANSWER + "12") is None
    assert remove_thoughts("<think>" + "x" * 10**6 + "</think>12") == "12"
    assert len(remove_thoughts("x" * 10**6) or "") == LONGEST_ANSWER


def find_calls(text: str) -> list[str] | None:
    """The pattern of Hermes' calls, which takes quadratic time."""
    bodies = re.findall(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)
    return bodies if text.count("<tool_call>") == text.count("</tool_call>") == len(bodies) else None


def find_choice(text: str) -> str | None:
    """The patterns of multiple choices without possessive quantifiers."""
    letter, named = "([ABCDE])", r"(?i:\s+is)?\s*:?\s*(?:\*\*|\()*"
    patterns = [
        rf"\\boxed\{{\(?(?:\\text\{{)?\(?{letter}\)?\}}",
        rf"(?i:answer){named}{letter}(?![\w'])",
        rf"(?:^|\n)[ \t*(]*{letter}[\s*).:]*\Z",
        rf"(?:(?<!\w)\((?=.\))|(?i:choice|option){named}){letter}(?![\w'])",
    ]
    return next((found[-1] for pattern in patterns if (found := re.findall(pattern, text))), None)


def find_code(text: str) -> str | None:
    blocks = re.findall(r"^```[ \t]*([\w+#-]*)[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return blocks[0][1] if blocks else None


def read_calls(text: str) -> list[str] | None:
    try:
        return [str(call.arguments["x"]) for call in HermesParser().parse_calls(text)]  # type: ignore[index]
    except ToolError:
        return None


def test_readers_that_take_linear_time_read_what_the_plain_patterns_read():
    rng = derive_rng("texts of readers")

    def draw(pieces: list[str]) -> list[str]:
        return ["".join(rng.choice(pieces, int(rng.integers(1, 9)))) for _ in range(3000)]

    call = '{"name": "n", "arguments": {"x": "1"}}'
    for text in draw(["<tool_call>", "</tool_call>", "\n", "a", f"<tool_call>{call}</tool_call>"]):
        bodies = find_calls(text)
        assert read_calls(text) == (None if bodies is None or set(bodies) - {call} else ["1"] * len(bodies)), text
    choices = [
        "answer",
        "Answer",
        " ",
        "\n",
        " is",
        "is ",
        ":",
        "**",
        "(",
        ")",
        "A",
        "B",
        ".",
        "option",
        "I",
        "IS",
        "\\boxed{",
    ]
    for text in draw(choices):
        assert EXTRACTORS["choice"]().find(text) == find_choice(text), text
    for text in draw(["```", "```\n", "```python\n", "``` py x\n", "a", "\n", " ", "x = 1\n", "\t"]):
        assert EXTRACTORS["code"]().find(text) == find_code(text), text
    for text in draw(["<answer>", "</answer>", "the ", "x", "y", "\n"]):
        pairs = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
        assert verify(text, "x") == {"exact": float(normalise(pairs[-1] if pairs else text) == "x")}, text
