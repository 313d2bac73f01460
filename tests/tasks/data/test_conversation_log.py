"""Logs of conversations with rewards: turns, splits, and rows that are refused by file and line."""

import pytest

from mmrl.core.types import Episode
from tasks.conversation_log.task import ConversationLog
from tests.tasks.data.talks import talk, write


@pytest.fixture
def task(tmp_path):
    return ConversationLog(str(write(tmp_path / "talks.jsonl")))


def test_every_turn_of_the_assistant_comes_after_the_messages_before_it(task):
    assert len(task) == 4
    first, second = task.demonstrations([task[0], task[1]])
    assert [([message["content"] for message in raw["messages"]], text) for raw, text in first] == [
        (["3+4="], "8"),
        (["3+4=", "8", "no"], "7"),
    ]
    assert [(raw["messages"][0]["content"], text) for raw, text in second] == [("2+2=", "4")]
    assert [task[i].info["turn_rewards"] for i in range(4)] == [(-0.5, 1.0), (1.0,), (0.0,), (1.0,)]
    assert task[0].messages == ({"role": "user", "content": "3+4="},) and task[1].place.endswith("talks.jsonl:2")
    longest = next(task.prompts_to_check())
    assert len(longest.messages) == 3 and longest.answer == task.demonstrate(0) == "7"
    assert task.score(Episode(task[0], 0, 0)) == {"return": 0.0}


def test_a_reward_of_the_whole_conversation_is_the_last_turns(tmp_path):
    path = write(tmp_path / "talks.jsonl", [talk("a", "b", "c", "d", "e", "f", reward=2)])
    assert ConversationLog(str(path))[0].info["turn_rewards"] == (0.0, 0.0, 2.0)


def test_conversations_that_begin_alike_are_in_one_split(tmp_path):
    rows = [talk(f"question {i % 20}", f"answer {i}", reward=i) for i in range(60)]
    task = ConversationLog(str(write(tmp_path / "talks.jsonl", rows)), held_out_fraction=0.5)
    parts = [task, task.on("held_out")]
    train, held_out = ({one[i].messages[0]["content"] for i in range(len(one))} for one in parts)
    assert train and held_out and not train & held_out
    assert sum(map(len, parts)) == 60
    whole = ConversationLog(task.path)
    with pytest.raises(ValueError, match=r"talks\.jsonl has 60 conversations and none in the split 'held_out'"):
        len(whole.on("held_out"))


NAN = float("nan")
BROKEN = {
    "no messages": ({"text": "a"}, r"needs 'messages', a list of chat messages, has \['text'\]; write \{\"messages\""),
    "no rewards": (talk("a", "b"), "has no rewards; write 'rewards'"),
    "two kinds of rewards": (talk("a", "b", rewards=[1], reward=1), "has 'rewards' and 'reward'; write"),
    "too few rewards": (talk("a", "b", "c", "d", rewards=[1]), "'rewards' has 1 numbers, and the assistant 2 turns"),
    "a number as the list": (talk("a", "b", rewards=1), "'rewards' has 1, no list, and the assistant 1 turns"),
    "a reward that is NaN": (talk("a", "b", "c", "d", rewards=[0, NAN]), "assistant's turn 1 is nan, not a finite"),
    "a reward of 400 digits": (talk("a", "b", reward=10**400), "assistant's turn 0 is 1000.*, not a finite number of"),
    "a reward of text": (talk("a", "b", reward="1"), "assistant's turn 0 is '1', not a finite number"),
    "a truth value": (talk("a", "b", reward=True), "assistant's turn 0 is True"),
    "no turn of the assistant": (talk("a", reward=1), "no message is the assistant's"),
    "the assistant first": ({"messages": [{"role": "assistant", "content": "a"}], "reward": 1}, "the first message is"),
    "another form": ({"messages": [{"from": "human", "value": "a"}], "reward": 1}, "which is no chat message"),
    "a list as a row": (["a"], "not an object with named columns"),
    "parts of content": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "reward": 1},
        "a message of role 'user' is not a text alone",
    ),
}


@pytest.mark.parametrize("row, message", BROKEN.values(), ids=BROKEN)
def test_rows_are_refused_by_file_and_line(tmp_path, row, message):
    path = write(tmp_path / "talks.jsonl", [talk("a", "b", reward=1), row])
    with pytest.raises(ValueError, match=rf"talks\.jsonl:2: .*({message})"):
        len(ConversationLog(str(path)))


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"talks\.jsonl has no rows; write one JSON object per line"):
        len(ConversationLog(str(write(tmp_path / "talks.jsonl", []))))
