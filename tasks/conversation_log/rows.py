"""Read a row of a log: the messages of a conversation, and the rewards of the assistant's turns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mmrl.files.strict_json import quote
from tasks.chat import Message, read_message
from tasks.dataset.source import Record, TableSource
from tasks.dataset.tables import open_table

_COLUMNS = ("messages", "rewards", "reward")
LARGEST = 1e9
"""Larger absolute rewards are refused."""


@dataclass(frozen=True)
class LoggedConversation:
    """A conversation with the rewards of the assistant's turns, in their order."""

    messages: tuple[Message, ...]
    rewards: tuple[float, ...]
    place: str  # file and row

    @property
    def turns(self) -> tuple[int, ...]:
        """Places of the assistant's messages."""
        return tuple(i for i, message in enumerate(self.messages) if message["role"] == "assistant")

    @property
    def start(self) -> tuple[Message, ...]:
        """The messages before the assistant's first turn."""
        return self.messages[: self.turns[0]]


def read_conversation(record: Record, place: str) -> LoggedConversation:
    """Read a row.

    Args:
        record: with `messages`, and `rewards`, one for each turn of the assistant, or `reward`, which its last turn
            gets.
        place: file and row, for messages.

    Raises:
        ValueError: a column is missing or has another form; with file and row.
    """
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError(
            f"{place}: the row needs 'messages', a list of chat messages, has {quote(sorted(record))}; write "
            '{"messages": [{"role": "user", "content": ...}, {"role": "assistant", "content": ...}], "rewards": [...]}'
        )
    read = tuple(read_message(message, "messages", place) for message in messages)
    for message in read:
        if not isinstance(message["content"], str) or "tool_calls" in message:
            raise ValueError(f"{place}: a message of role {message['role']!r} is not a text alone; leave the row out")
    turns = [message for message in read if message["role"] == "assistant"]
    if not turns or read[0]["role"] == "assistant":
        reason = "no message is the assistant's" if not turns else "the first message is the assistant's"
        raise ValueError(f"{place}: {reason}; a conversation begins with another's message and has the assistant's")
    return LoggedConversation(read, _read_rewards(record, len(turns), place), place)


def _read_rewards(record: Record, turns: int, place: str) -> tuple[float, ...]:
    stated = [name for name in _COLUMNS[1:] if record.get(name) is not None]
    if len(stated) != 1:
        raise ValueError(
            f"{place}: the row has {' and '.join(map(repr, stated)) or 'no rewards'}; write 'rewards', a number for "
            "each turn of the assistant, or 'reward', a number for the whole conversation"
        )
    values: Any = record[stated[0]]
    rewards = values if stated == ["rewards"] else [0.0] * (turns - 1) + [values]
    if not isinstance(rewards, list) or len(rewards) != turns:
        count = f"{len(rewards)} numbers" if isinstance(rewards, list) else f"{quote(rewards)}, no list"
        raise ValueError(f"{place}: 'rewards' has {count}, and the assistant {turns} turns; write a number for each")
    for number, value in enumerate(rewards):
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not -LARGEST <= value <= LARGEST:
            raise ValueError(
                f"{place}: the reward of the assistant's turn {number} is {quote(value)[:40]}, not a finite number of "
                f"at most {LARGEST:g}; correct it or leave the row out"
            )
    return tuple(map(float, rewards))


@lru_cache(maxsize=8)
def read_log(source: TableSource) -> tuple[LoggedConversation, ...]:
    """Read and check all rows of a file."""
    table = open_table(source)
    return tuple(read_conversation(record, table.place(i)) for i, record in enumerate(table.records()))
