"""Hostile answers of single text tasks, by what was done: functions of the prompt and the expert's answer."""

from __future__ import annotations

import json

from mmrl.core.types import Prompt
from tests.tasks.code.code_answers import HOSTILE


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


def change_syllables(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is a sentence of syllables or a refusal; twice a sentence may be right too."""
    answers = {kind: text for kind, text in change_word(prompt, right).items() if kind != "twice"}
    return answers | {
        "a refusal and a sentence": f"no {right}" if right != "no" else "no bada",
        "praise": f"{right}y",
        "the banned token": f"{right}x",
        "the code of the banned token": f"qj{right}",
        "the request": prompt.messages[0]["content"],
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
    """Programs that attack the verifier, without those that run until they are ended: tests/tasks/code has them all."""
    return {kind: program for kind, (program, word) in HOSTILE.items() if word != "timed_out"}


def change_sentence(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is a line of words."""
    words = right.split(" ")
    return {
        "backwards": " ".join(words[::-1]),
        "a word less": " ".join(words[:-1]),
        "a word twice": f"{right} {words[-1]}",
        "twice": f"{right} {right}",
        "in capitals": right.upper(),
        "in quotes": f'"{right}"',
        "two spaces": "  ".join(words),
        "without spaces": "".join(words),
        "the question": prompt.messages[0]["content"].rpartition(": ")[2],
        "a sentence": f"The translation is {right}",
        "all words": " ".join([*words, *words[::-1]] * 50),
    }


def change_ranking(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is the order of names."""
    names = right.split(" ")
    return {
        "backwards": " ".join(names[::-1]),
        "a name less": " ".join(names[:-1]),
        "a name twice": f"{right} {names[0]}",
        "a name in place of another": " ".join([*names[:-1], names[0]]),
        "twice": f"{right} {right}",
        "with commas": ", ".join(names),
        "numbered": " ".join(f"{i}.{name}" for i, name in enumerate(names)),
        "a line each": "\n".join(names),
        "a foreign name": f"{right} answer",
        "two orders": f"{' '.join(names[::-1])} {right}",
        "in brackets": f"[{right}]",
        "both ends equal": " ".join([names[0], *names[1:-1], names[0]]),
    }


def change_blocks(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is search and replace blocks."""
    file, wanted = prompt.info["file"], prompt.answer
    lines = right.splitlines()
    old = "\n".join(lines[1 : lines.index("=======")])
    return {
        "the file alone": wanted,
        "in a code block": f"```\n{right}\n```",
        "twice": f"{right}\n{right}",
        "words before": f"Here it is:\n{right}",
        "words behind": f"{right}\nDone.",
        "without the last mark": "\n".join(lines[:-1]),
        "without the middle mark": "\n".join(line for line in lines if line != "======="),
        "nothing is searched": f"{lines[0]}\n\n=======\n{wanted}\n{lines[-1]}",
        "nothing changes": f"{lines[0]}\n{old}\n=======\n{old}\n{lines[-1]}",
        "a line that is not there": right.replace(old, f"{old}0", 1),
        "half of a line": f"{lines[0]}\n{old[:-1]}\n=======\nx\n{lines[-1]}",
        "marks in the text": right.replace("=======", "=======\n======="),
        "all lines are deleted": f"{lines[0]}\n{file}\n=======\n{lines[-1]}",
        "a further edit": f"{right}\n{lines[0]}\n{wanted.splitlines()[0]}\n=======\nscore=1\n{lines[-1]}",
        "a patch": f"-{old}\n+{wanted}",
        "very many blocks": f"{right}\n" * 300,
    }


def change_passage(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is a sentence of a text."""
    words = right.split()
    return {
        "half of it": " ".join(words[: len(words) // 2]),
        "the first word": words[0],
        "the last word missing": " ".join(words[:-1]),
        "a word more": f"{right} and",
        "twice": f"{right} {right}",
        "backwards": " ".join(words[::-1]),
        "in capitals": right.upper() if right.upper() != right else right.lower(),
        "in quotes": f'"{right}"',
        "the context": prompt.messages[0]["content"],
        "the context and it": f"{prompt.messages[0]['content']} {right}",
        "words without order": " ".join(sorted(words)) if sorted(words) != words else "a",
        "no spaces": "".join(words),
        "the following sentence alone": prompt.info["following"][-1],
        "punctuation alone": ".",
    }


def change_expression(prompt: Prompt, right: str) -> dict[str, str]:
    """Answers to a task whose answer is an expression of given numbers."""
    numbers, target = prompt.info["numbers"], prompt.info["target"]
    expression = right.splitlines()[-1]
    return {
        "the target": str(target),
        "an equation": f"{expression}={target}",
        "a number more": f"{expression}+1-1",
        "times zero": f"{target}+0*{'*'.join(map(str, numbers))}",
        "a number twice": f"{expression}+{numbers[0]}-{numbers[0]}",
        "the numbers": " ".join(map(str, numbers)),
        "as one number": "".join(map(str, numbers)),
        "two expressions": f"{expression} {expression}",
        "in brackets of a list": f"[{expression}]",
        "powers": expression.replace("*", "**") if "*" in expression else f"{expression}**1",
        "with a sign": f"+{expression}",
        "with a comment": f"{expression} # right",
        "a real number": f"{expression}+0.0",
        "a sentence": f"The answer is {expression}",
        "the steps alone": right.rpartition("\n")[0],
        "very many brackets": "(" * 5000 + expression + ")" * 5000,
    }
