"""What a tool says of itself, how calls are read, and what becomes of each of them."""

import pytest

from mmrl.tools.base import BadArguments, Tool
from mmrl.tools.hands import CUT, FAULTS, Hands
from mmrl.tools.markup import Call, NoCall, Tags, arguments
from tests.tools.examples import Divide, Echo

JSON = Tags(opening="<call>", closing="</call>", answer="</answer>")


def answered(tool, call, hands=None):
    hands = hands or Hands()
    pending = hands.begin(call, {"t": tool})
    hands.wait([pending])
    return hands.end(pending)


def test_the_signature_is_the_schema():
    made = Divide().schema["function"]
    assert made["name"] == "divide" and made["description"] == "Divide."
    assert made["parameters"]["required"] == ["left"]
    assert made["parameters"]["properties"]["left"] == {"type": "integer", "description": "what is shared out."}


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
        arguments(Call("divide", given), Divide())
    assert answered(Divide(), Call("t", given)).outcome == "BadArguments"


def test_a_call_is_what_stands_between_its_marks():
    tools = {"say": Echo(), "divide": Divide()}
    markup = Tags(answer="</answer>")
    assert markup.stops(tools) == ("</say>", "</divide>", "</answer>")
    assert markup.call("let me <say>a <b</say>", tools) == Call("say", "a <b")
    assert markup.call("<say>first<say>second</say>", tools) == Call("say", "second")
    assert markup.call("<answer>4</answer>", tools) is None
    for text, reason in (("a</say>", "before </say>"), ("4", "end with one of </say> </divide> </answer>")):
        with pytest.raises(NoCall, match=reason):
            markup.call(text, tools)
    short = Tags(opening="{name}:", closing=";")  # tools may share an end: the last mark before it counts
    assert short.call("divide: no, say: a;", tools) == Call("say", " a")
    assert Tags().call("4", tools) is None  # without a mark of its own, what is no call is the answer


def test_calls_may_name_their_tool_in_json():
    tools = {"divide": Divide()}
    call = JSON.call('<call>{"name": "divide", "arguments": {"left": 7, "right": 2}}</call>', tools)
    assert arguments(call, tools["divide"]) == {"left": 7, "right": 2}
    with pytest.raises(BadArguments, match="name"):
        JSON.call("<call>{}</call>", tools)
    hands = Hands()
    pending = hands.begin(Call("nobody", {}), tools)
    assert hands.end(pending).outcome == "UnknownTool" and "divide" in pending.answer.text


def test_what_is_asked_well_is_answered():
    assert answered(Divide(), Call("t", '{"left": 7, "right": 2}')).text == "3"
    assert answered(Echo(), Call("t", " a b ")).text == "a b"


def test_errors_have_the_names_that_the_tool_gives_them():
    answer = answered(Divide(), Call("t", '{"left": 7, "right": 0}'))
    assert (answer.outcome, answer.text, answer.fault) == ("DivisionByZero", "right is 0", False)


@pytest.mark.parametrize(
    ("way", "outcome"),
    [("raise", "raised"), ("exit", "raised"), ("bytes", "not_text"), ("binary", "not_text"), ("hang", "timed_out")],
)
def test_faults_of_a_tool_have_names(way, outcome, caplog):
    answer = answered(Echo(way, seconds=0.05 if way == "hang" else 5.0), Call("t", "a"))
    assert answer.outcome == outcome and answer.fault and outcome in FAULTS
    assert f"tools/t/{outcome}" in caplog.text


def test_ten_megabytes_are_cut_and_say_so():
    answer = answered(Echo("long"), Call("t", "a"))
    assert answer.outcome == "cut" and answer.served
    assert answer.text == "x" * Echo.most + CUT


def test_slow_tools_wait_for_nobody():
    hands, slow, quick = Hands(), Echo(after=0.6), Echo()
    pending = [hands.begin(Call("t", "a"), {"t": tool}) for tool in (slow, quick, slow)]
    hands.wait(pending, patience=0.0)
    assert [p.done() for p in pending] == [False, True, False]
    hands.wait(pending)
    assert all(p.done() for p in pending)


def test_a_thread_that_hangs_is_replaced():
    hands = Hands(threads=1)
    pending = [hands.begin(Call("t", "a"), {"t": tool}) for tool in (Echo("hang", seconds=0.05), Echo())]
    hands.wait(pending[:1])
    assert hands.end(pending[0]).outcome == "timed_out"
    hands.wait(pending[1:])
    assert hands.end(pending[1]).outcome == "ok"


def test_a_tool_that_never_comes_back_stops_the_run_with_a_message():
    hands = Hands(most_lost=1)
    answered(Echo("hang", seconds=0.01), Call("t", "a"), hands)
    with pytest.raises(RuntimeError, match=r"tool 't' has not come back from 2 calls"):
        answered(Echo("hang", seconds=0.01), Call("t", "a"), hands)
