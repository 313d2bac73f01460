"""The grammar of actions: what is read, and what is refused."""

import pytest

from tasks.browser.actions import ACTIONS, BrowserAction, describe_actions, parse_action


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("click 0 15", BrowserAction("click", 0, 15)),
        ("click #7", BrowserAction("click_element", element=7)),
        (r'type "a \"b\" ü"', BrowserAction("type", text='a "b" ü')),
        ("press Enter", BrowserAction("press", text="Enter")),
        ("scroll 3 4 up", BrowserAction("scroll", 3, 4, text="up")),
        ("wait", BrowserAction("wait")),
    ],
)
def test_actions_are_read(line, action):
    assert parse_action(line, ACTIONS, 16, 16) == action
    assert parse_action(line, [kind for kind in ACTIONS if kind != action.kind], 16, 16) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "click",
        "click 3",
        "click 3 4 5",
        "click 16 0",
        "click 0 16",
        "click -1 3",
        "click 3.5 4",
        "click 03 4",
        "click ３ 4",
        "Click 3 4",
        "click 3 4\nclick 5 6",
        "click 3  4",
        "click 99999 4",
        "click # 1",
        'type "open',
        "type word",
        r'type "\u0007"',
        'type "' + "x" * 201 + '"',
        "press enter",
        "press F12",
        "scroll 3 4",
        "scroll 3 4 left",
        "wait 5",
        "javascript:alert(1)",
    ],
)
def test_everything_else_is_refused(line):
    assert parse_action(line, ACTIONS, 16, 16) is None


def test_the_description_names_the_limits():
    assert describe_actions(["click", "wait"], 16, 21) == "click X Y (X from 0 to 15, Y from 0 to 20); wait"
