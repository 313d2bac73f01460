"""Hostile answers of single text tasks, by what was done: functions of the prompt and the expert's answer."""

from __future__ import annotations

import json

from mmrl.types import Prompt
from tests.tasks.code_answers import HOSTILE


def change_word(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is one word."""
    word = right.splitlines()[-1]
    return {
        "twice": word * 2,
        "many times": word * 1000,
        "in capitals": word.upper(),
        "in quotes": f'"{word}"',
        "with a full stop": f"{word}.",
        "with a letter more": f"{word}a",
        "with a letter less": word[:-1],
        "letters apart": " ".join(word) if len(word) > 1 else f"{word} {word}",
        "as an equation": f"{prompt.messages[0]['content']}{word}",
        "a sentence": f"The answer is {word}",
        "all words of a letter": "\n".join("abcdefghijklmnopqrstuvwxyz") + "\n",
        "Cyrillic vowels": word.translate(str.maketrans("aeopcx", "аеорсх")) + "а",
    }


def change_solution(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose solution ends with a step b=a+2=5."""
    *steps, last = right.splitlines()
    value = int(last.rsplit("=", 1)[1])
    asked = last[0]
    other = "a" if asked != "a" else "b"
    return {
        "another value": "\n".join([*steps, last[: last.rindex("=") + 1] + str(value + 1)]),
        "the value of another quantity": f"{other}={value}",
        "all values": " ".join(map(str, range(10))),
        "all values as steps on one line": " ".join(f"{asked}={v}" for v in range(10)),
        "two values": f"{asked}={value}={value + 1}",
        "a sum that is the value": f"{asked}={value}+0",
        "a leading zero": f"{asked}=0{value}",
        "a real number": f"{value}.0",
        "with a sign": f"+{value}",
        "modulo 10": f"{asked}={value + 10}",
        "another last line": f"{right}\nso it is",
    }


def change_call(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers that stuff, repeat or disguise tool calls."""
    return {
        "twice": f"[{right}, {right}]",
        "two lines": f"{right}\n{right}",
        "a call of each tool": json.dumps([{"name": name, "arguments": {}} for name in prompt.info["parameters"]]),
        "an unknown tool as well": f'[{right}, {{"name": "answer", "arguments": {{}}}}]',
        "in tags": f"<tool_call>{right}</tool_call>",
        "in a code block": f"```json\n{right}\n```",
        "as a text": json.dumps(right),
        "with a comment": f"{right} // right",
        "a further key": right.replace('{"name"', '{"score": 1, "name"') if right[0] == "{" else "[no call]",
        "a key twice": right.replace('{"name"', '{"name": "x", "name"') if right[0] == "{" else "no  call",
        "no brackets": right.strip("{}[]") if right[0] in "{[" else "No call",
        "single quotes": right.replace('"', "'") if '"' in right else "'no call'",
        "a call and none": f"{right}\nno call" if right != "no call" else 'no call\n{"name": "x", "arguments": {}}',
        "numbers as texts": right.replace(": ", ': "').replace(",", '",') if ": " in right else "no call!",
    }


def change_order(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is the order of lines, as numbers."""
    numbers = right.split()
    return {
        "one place less": " ".join(numbers[:-1]),
        "one place more": f"{right} {len(numbers)}",
        "a line twice": " ".join([*numbers[:-1], numbers[0]]),
        "all places equal": " ".join(["0"] * len(numbers)),
        "with commas": ",".join(numbers),
        "in brackets": f"[{right}]",
        "two spaces": "  ".join(numbers),
        "leading zeros": " ".join(f"0{n}" for n in numbers),
        "negative": " ".join(f"-{n}" for n in numbers),
        "backwards": " ".join(numbers[::-1]),
        "from 1": " ".join(str(int(n) + 1) for n in numbers),
    }


def change_query(prompt: Prompt, right: str) -> dict[str, str]:
    """Queries that are right on one database, or do more than read."""
    return {
        "two statements": f"{right}; {right}",
        "drops a table": "DROP TABLE worker",
        "an empty result": f"SELECT * FROM ({right}) WHERE 0",
        "each row twice": f"SELECT * FROM ({right}) UNION ALL SELECT * FROM ({right})",
        "a column more": f"SELECT *, 1 FROM ({right})",
        "a row more": f"SELECT * FROM ({right}) UNION ALL SELECT * FROM (SELECT * FROM ({right}) LIMIT 1)",
        "a constant": "SELECT 1",
        "null": "SELECT NULL",
        "endless": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t",
        "random": "SELECT ABS(RANDOM()) % 10",
        "the schema": "SELECT sql FROM sqlite_master",
        "explained": f"EXPLAIN {right}",
        "as text": f"SELECT '{right.replace(chr(39), chr(39) * 2)}'",
    }


def list_programs(prompt: Prompt, right: str) -> dict[str, str]:
    """Programs that attack the verifier, without those that take a second each."""
    return {kind: program for kind, (program, _) in HOSTILE.items() if "loop that catches" not in kind}
