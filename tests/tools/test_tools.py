"""What a tool says of itself, how calls are read, and what becomes of each of them."""

import pytest

from mmrl.tools.base import BadArguments, Tool
from mmrl.tools.call_parser import NoCall, TagParser, ToolCall, bind_arguments
from mmrl.tools.executor import FAULTS, TRUNCATED, ToolExecutor
from tests.tools.examples import Divide, Echo

JSON = TagParser(open_tag="<call>", close_tag="</call>", answer_end="</answer>")


def answered(tool, call, executor=None):
    executor = executor or ToolExecutor()
    pending = executor.submit(call, {"t": tool})
    executor.wait([pending])
    return executor.result(pending)


def test_the_signature_is_the_schema():
    actual = Divide().schema["function"]
    assert actual["name"] == "divide" and actual["description"] == "Divide."
    assert actual["parameters"]["required"] == ["left"]
    assert actual["parameters"]["properties"]["left"] == {"type": "integer", "description": "what is shared out."}


def test_a_tool_without_typed_arguments_is_refused():
    class Untyped(Tool):
        def run(self, query) -> str:
            return query

    with pytest.raises(TypeError, match=r"Untyped.*annotated.*query"):
        _ = Untyped().parameters


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"right": 2}, "left is missing"),
        ({"left": 1, "up": 2}, "up is no argument; there are left, right"),
        ({"left": "1"}, "left must be a integer"),
        ({"left": True}, "left must be a integer"),
        ("[1]", "write one JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_arguments_that_do_not_fit_are_named(given, reason):
    with pytest.raises(BadArguments, match=reason):
        bind_arguments(ToolCall("divide", given), Divide())
    assert answered(Divide(), ToolCall("t", given)).outcome == "BadArguments"


def test_a_call_is_what_stands_between_its_marks():
    tools = {"say": Echo(), "divide": Divide()}
    parser = TagParser(answer_end="</answer>")
    assert parser.stop_strings(tools) == ("</say>", "</divide>", "</answer>")
    assert parser.parse("let me <say>a <b</say>", tools) == [ToolCall("say", "a <b")]
    assert parser.parse("<say>first<say>second</say>", tools) == [ToolCall("say", "second")]
    assert parser.parse("<answer>4</answer>", tools) == []
    for text, reason in (("a</say>", "before </say>"), ("4", "end with one of </say> </divide> </answer>")):
        with pytest.raises(NoCall, match=reason):
            parser.parse(text, tools)
    short = TagParser(open_tag="{name}:", close_tag=";")  # tools may share an end: the last mark before it counts
    assert short.parse("divide: no, say: a;", tools) == [ToolCall("say", " a")]
    assert TagParser().parse("4", tools) == []  # without a mark of its own, what is no call is the answer


def test_calls_may_name_their_tool_in_json():
    tools = {"divide": Divide()}
    [call] = JSON.parse('<call>{"name": "divide", "arguments": {"left": 7, "right": 2}}</call>', tools)
    assert bind_arguments(call, tools["divide"]) == {"left": 7, "right": 2}
    with pytest.raises(BadArguments, match="name"):
        JSON.parse("<call>{}</call>", tools)
    executor = ToolExecutor()
    pending = executor.submit(ToolCall("nobody", {}), tools)
    assert executor.result(pending).outcome == "UnknownTool" and "divide" in pending.result.text


def test_what_is_asked_well_is_answered():
    assert answered(Divide(), ToolCall("t", '{"left": 7, "right": 2}')).text == "3"
    assert answered(Echo(), ToolCall("t", " a b ")).text == "a b"


def test_errors_have_the_names_that_the_tool_gives_them():
    answer = answered(Divide(), ToolCall("t", '{"left": 7, "right": 0}'))
    assert (answer.outcome, answer.text, answer.fault) == ("DivisionByZero", "right is 0", False)


@pytest.mark.parametrize(
    ("way", "outcome"),
    [("raise", "raised"), ("exit", "raised"), ("bytes", "not_text"), ("hang", "timed_out")],
)
def test_faults_of_a_tool_have_names(way, outcome, caplog):
    answer = answered(Echo(way, timeout_s=0.05 if way == "hang" else 5.0), ToolCall("t", "a"))
    assert answer.outcome == outcome and answer.fault and outcome in FAULTS
    assert f"tools/t/{outcome}" in caplog.text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("a\r\nb\rc\n\td", "a\nb\nc\n\td"),
        ("1\u00a0000\u202fkm\u3000x", "1 000 km x"),
        ("\u200ba\x07\x1b[2J\ufeff", "\ufffda\ufffd\ufffd[2J\ufffd"),
        ("\x00\x01\udcff", "\ufffd" * 3),
        ("ä 日本 🙂", "ä 日本 🙂"),
    ],
)
def test_unprintable_characters_are_replaced(given, text):
    answer = answered(Echo(), ToolCall("t", {"text": given}))
    assert (answer.outcome, answer.text) == ("ok", text)


def test_a_text_is_as_long_as_its_lines_say():
    fits, longer = ("\r\n" * (Echo.max_chars + extra) for extra in (0, 1))
    assert answered(Echo(), ToolCall("t", {"text": fits})).text == "\n" * Echo.max_chars
    answer = answered(Echo(), ToolCall("t", {"text": longer}))
    assert (answer.outcome, answer.text) == ("truncated", "\n" * Echo.max_chars + TRUNCATED)


def test_ten_megabytes_are_cut_and_say_so():
    answer = answered(Echo("long"), ToolCall("t", "a"))
    assert answer.outcome == "truncated" and answer.succeeded
    assert answer.text == "x" * Echo.max_chars + TRUNCATED


def test_slow_tools_wait_for_nobody():
    executor, slow, quick = ToolExecutor(), Echo(after=0.6), Echo()
    pending = [executor.submit(ToolCall("t", "a"), {"t": tool}) for tool in (slow, quick, slow)]
    executor.wait(pending, max_wait_s=0.0)
    assert [p.is_done() for p in pending] == [False, True, False]
    executor.wait(pending)
    assert all(p.is_done() for p in pending)


def test_a_thread_that_hangs_is_replaced():
    executor = ToolExecutor(threads=1)
    pending = [executor.submit(ToolCall("t", "a"), {"t": tool}) for tool in (Echo("hang", timeout_s=0.05), Echo())]
    executor.wait(pending[:1])
    assert executor.result(pending[0]).outcome == "timed_out"
    executor.wait(pending[1:])
    assert executor.result(pending[1]).outcome == "ok"


def test_a_tool_that_never_comes_back_stops_the_run_with_a_message():
    executor = ToolExecutor(max_timeouts=1)
    answered(Echo("hang", timeout_s=0.01), ToolCall("t", "a"), executor)
    with pytest.raises(RuntimeError, match=r"tool 't' has 2 calls past their timeout"):
        answered(Echo("hang", timeout_s=0.01), ToolCall("t", "a"), executor)
