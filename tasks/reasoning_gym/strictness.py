"""Answers that a generator of reasoning-gym must not evaluate, and full scores that it gives to wrong answers."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from mmrl.rewards.answers.numbers import parse_number

Entry = Mapping[str, Any]
"""A problem as a generator makes it: question, answer and metadata."""

LONGEST_FORMULA, LONGEST_LIST = 2_000, 100_000
"""Characters of an answer that is evaluated."""

_MATHEMATICS = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
        *("atanh", "exp", "log", "ln", "sqrt", "Abs", "E", "pi", "C"),
    )
)
_FORMULAS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("countdown", "puzzle24", "polynomial_multiplication"), frozenset()),
    **dict.fromkeys(("simple_integration", "intermediate_integration"), _MATHEMATICS),
}
"""By generator whose scorer gives the answer to sympy's parse_expr, which runs eval: names that the answer may hold
beside those of the generator's own answer."""
_LISTS = frozenset(("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"))
"""Generators whose scorer runs eval on an answer that is not right as it is, to find a Python list."""

_MOVES = frozenset(("jugs", "tower_of_hanoi", "word_ladder", "boxnet", "rubiks_cube", "rush_hour", "n_queens"))
"""Generators whose scorer plays or checks the whole answer, of which there are several right ones."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w")
_CHARACTERS = re.compile(r"[0-9A-Za-z+\-*/^().,\s]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z][0-9A-Za-z]*")
_BULLET = re.compile(r"^\s*(?:[-*]|[0-9]+[.)])\s+")
_LONE_DOT = re.compile(r"(?<![0-9])\.|\.(?![0-9])")


def is_refused(dataset: str, answer: str, entry: Entry) -> bool:
    """Whether an answer is a formula to a generator, and holds more than mathematics: its evaluation could run code.

    Mathematics is digits, known names, + - * / ^ ( ) commas and blanks, and a dot between digits.
    """
    text = answer.strip()
    if dataset not in _FORMULAS or text == entry["answer"]:
        return False
    if len(text) > LONGEST_FORMULA or not _CHARACTERS.fullmatch(text) or _LONE_DOT.search(text):
        return True
    return not _FORMULAS[dataset].union(_NAME.findall(entry["answer"])).issuperset(_NAME.findall(text))


def is_wrong_list(dataset: str, answer: str, entry: Entry) -> bool:
    """Whether a generator would evaluate an answer that is neither right as it is nor a Python literal."""
    if dataset not in _LISTS:
        return False
    text, right = answer.strip(), entry["metadata"].get("valid_answers", [entry["answer"]])
    return text not in (one.strip() for one in right) and (len(text) > LONGEST_LIST or not _is_literal(text))


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def limit_score(dataset: str, answer: str, entry: Entry) -> float:
    """The most that an answer with a full score earns: less than 1 where the generator's scorer accepts wrong ones."""
    if has_more(dataset, answer, entry["answer"]):
        return 0.0
    return _LIMITS[dataset](answer, entry) if dataset in _LIMITS else 1.0


def has_more(dataset: str, answer: str, right: Any) -> bool:
    """Whether an answer is more than one answer: the right one with words before or behind it, or two numbers.

    Many scorers search a text for what is right, or compare a part of it. Formulas are evaluated as a whole, and a
    longer sequence of moves can be a solution.
    """
    text = answer.strip()
    if not isinstance(right, str) or text == right.strip() or dataset in _FORMULAS or dataset in _MOVES:
        return False
    if parse_number(right) is not None:
        return parse_number(text.removesuffix(".")) is None or re.search(r"[0-9]\s+[0-9]", text) is not None
    parts, target = _TOKEN.findall(text), _TOKEN.findall(right)
    for start in range(len(parts) - len(target) + 1):
        if parts[start : start + len(target)] == target:
            return any(_WORD.match(part) for part in (*parts[:start], *parts[start + len(target) :]))
    return False


def _limit_same_text(answer: str, entry: Entry) -> float:
    """The scorer of game_of_life_halting accepts every text that is not empty."""
    return float(answer.strip() == entry["answer"])


def _limit_nan(answer: str, entry: Entry) -> float:
    """The scorers of complex_arithmetic and number_sorting compare with NaN, which is no difference to them."""
    return float(re.search("nan", answer, re.IGNORECASE) is None)


def _limit_prefix(answer: str, entry: Entry) -> float:
    """The scorer of coin_flip accepts "0" for 0.3125, whose first digit it is: count the digits of the longer one."""
    ours, right = (float(Fraction(text.replace(",", ""))) for text in (answer, entry["answer"]))
    if math.isclose(ours, right, rel_tol=0, abs_tol=1e-4):
        return 1.0
    lengths = [len(f"{number:.10g}") for number in (ours, right)]
    return min(lengths) / max(lengths)


def _limit_given_numbers(answer: str, entry: Entry) -> float:
    """The scorer of puzzle24 accepts any four numbers of the right size."""
    used = sorted(map(int, re.findall(r"\b[0-9]+\b", answer)))
    return 1.0 if used == sorted(entry["metadata"]["numbers"]) else 0.01  # what it gives to other wrong answers


def _limit_steps(answer: str, entry: Entry) -> float:
    """The scorer of sokoban plays the letters that it knows and skips the others."""
    return float(re.fullmatch(r"[LRUDlrud]+", answer.strip()) is not None)


def _limit_presses(answer: str, entry: Entry) -> float:
    """The scorer of quantum_lock reads every A, B and C of a text."""
    return float(re.fullmatch(r"[A-C](?:\s*(?:→|->|,|-|\s)\s*[A-C]|[A-C])*", answer.strip(), re.IGNORECASE) is not None)


def _limit_slides(answer: str, entry: Entry) -> float:
    """The scorer of rush_hour searches a text for moves, and skips other words, blocked moves and those after the end.

    Here each step has to be possible; the last move may go beyond the edge, out of the jam.
    """
    from reasoning_gym.games.rush_hour import Board

    text = rewrite_answer("rush_hour", answer, entry).strip()
    if len(text) > LONGEST_FORMULA or not re.fullmatch(r"[A-Z][+-][1-9](?:[\s,]+[A-Z][+-][1-9])*", text):
        return 0.0
    board = Board(entry["metadata"]["board_config"])
    for move in re.findall("[A-Z][+-][1-9]", text):
        if board.solved:
            return 0.0
        for _ in range(int(move[2])):
            before = str(board)
            board.perform_moves(f"{move[:2]}1")
            if str(board) == before and not board.solved:
                return 0.0
    return 1.0


def _limit_turns(answer: str, entry: Entry) -> float:
    """The scorer of rubiks_cube takes a number alone for a move that is repeated, of no side."""
    return float(re.fullmatch(r"[A-Za-z]+'?[0-9]{0,2}(?:\s+[A-Za-z]+'?[0-9]{0,2})*", answer.strip()) is not None)


def _limit_one_fraction(answer: str, entry: Entry) -> float:
    """The scorer of fraction_simplification reads the first fraction of a text."""
    return float(parse_number(answer.strip().removesuffix(".")) is not None)


def _limit_number(answer: str, entry: Entry) -> float:
    """The scorer of gsm_symbolic reads the digits of the first number, without its sign and what stands behind it."""
    text = answer.strip().removesuffix(".")
    if re.search("what percent|percentage", entry["question"], re.IGNORECASE):
        text = text.removesuffix("%").strip()
    return float(parse_number(text) == parse_number(entry["answer"]))


def _limit_cells(answer: str, entry: Entry) -> float:
    """The scorer of kakurasu reads every 0 and 1 of a text, and skips signs, letters and other digits."""
    rows = (_BULLET.sub("", row) for row in answer.strip().removesuffix(".").split("\n"))
    return float(all(re.fullmatch(r"[01\s,;|*`'\"()\[\]{}]*", row) for row in rows))


def _limit_letters(answer: str, entry: Entry) -> float:
    """The scorer of spell_backward adds 1/9 nine times to more than 1, and does not see that a word is too long."""
    return 1.0 if answer.strip().lower() == entry["answer"].lower() else 0.8  # what it gives to other words too long


_CLOCK = r"[0-9]+\s*:\s*[0-9]{1,2}(?:\s*:\s*[0-9]{1,2}(?:\.(?:[0-9]{3}|0+))?)?"
_DURATIONS: Mapping[str, str] = {
    "date": r"[0-9]+(?:\s*days?)?\.?",
    "time": _CLOCK,
    "datetime": rf"[0-9]+ days,\s*{_CLOCK}",
}


def _limit_duration(answer: str, entry: Entry) -> float:
    """The scorer of time_intervals skips the unit of days, the sign of no hours and what follows the seconds."""
    pattern = _DURATIONS[entry["metadata"]["task_type"].split("_")[0]]
    return float(re.fullmatch(pattern, answer.strip(), re.IGNORECASE | re.ASCII) is not None)


def _limit_mapping(answer: str, entry: Entry) -> float:
    """The scorer of cryptarithm takes 00 for a digit, and the last of two digits of one letter."""
    pairs = [re.fullmatch(r"\s*([A-Z])\s*=\s*[0-9]\s*", pair) for pair in answer.split(",")]
    letters = [pair[1] for pair in pairs if pair]
    return 1.0 if len(set(letters)) == len(pairs) else 0.01  # what it gives to other wrong answers


def _limit_roles(answer: str, entry: Entry) -> float:
    """The scorer of knights_knaves takes the word before a role for the name, and skips "not" before the name."""
    pairs = re.findall(r"(\S+) is an? (\w+)", entry["answer"].lower())
    clauses = "|".join(f"{re.escape(name)} (?:is )?(?:an? )?{role}" for name, role in pairs)
    lines = (_BULLET.sub("", line) for line in answer.lower().splitlines())
    text = " ".join(re.sub("[.,()]", " ", " ".join(lines)).split())
    return float(re.fullmatch(rf"(?: ?(?:and )?(?:{clauses})(?= |$))+", text) is not None)


def _limit_conclusion(answer: str, entry: Entry) -> float:
    """The scorer of propositional_logic takes every other text beside an operator for a proposition."""
    text = re.sub(r"\s", "", answer.removesuffix("."))
    if len(text) > LONGEST_FORMULA or not re.fullmatch("[A-Z¬∧∨→↔()]+", text):
        return 0.0
    text, before = re.sub("[A-Z]", "p", text), ""
    while text != before:
        text, before = re.sub(r"¬p|\(p\)|p[∧∨→↔]p", "p", text), text
    return float(text == "p")


def _limit_disks(answer: str, entry: Entry) -> float:
    """The scorer of tower_of_hanoi searches a line for a move, and skips signs and letters before it."""
    move = r"Move disk [0-9]+ from Peg [0-9]+ to Peg [0-9]+"
    return float(all(re.fullmatch(move, line.strip()) for line in answer.splitlines() if line.strip()))


def _limit_boxes(answer: str, entry: Entry) -> float:
    """The scorer of boxnet reads the two numbers of an agent and of a square, and skips what stands around them."""
    place = r"\[[0-9]+\.?[0-9]*,\s*[0-9]+\.?[0-9]*\]"
    agent, move = rf"\s*Agent{place}\s*", rf"\s*move\(box_\w+,\s(?:target_\w+|square{place})\)\s*"
    actions = (action for step in json.loads(answer) for action in step.items())
    return float(all(re.fullmatch(agent, who) and re.fullmatch(move, what) for who, what in actions))


_LIMITS: Mapping[str, Callable[[str, Entry], float]] = {
    "game_of_life_halting": _limit_same_text,
    "complex_arithmetic": _limit_nan,
    "number_sorting": _limit_nan,
    "coin_flip": _limit_prefix,
    "sokoban": _limit_steps,
    "fraction_simplification": _limit_one_fraction,
    "puzzle24": _limit_given_numbers,
    "quantum_lock": _limit_presses,
    "rubiks_cube": _limit_turns,
    "rush_hour": _limit_slides,
    "gsm_symbolic": _limit_number,
    "kakurasu": _limit_cells,
    "spell_backward": _limit_letters,
    "time_intervals": _limit_duration,
    "cryptarithm": _limit_mapping,
    "knights_knaves": _limit_roles,
    "propositional_logic": _limit_conclusion,
    "tower_of_hanoi": _limit_disks,
    "boxnet": _limit_boxes,
}


def rewrite_answer(dataset: str, answer: str, entry: Entry) -> str:
    """Write an answer as the generator's scorer reads it.

    The scorer of rush_hour counts the pieces in the order of their letters, which is another piece on a board that
    leaves out a letter; an answer names the pieces as the question shows them.
    """
    if dataset != "rush_hour":
        return answer
    letters = sorted({letter for letter in entry["metadata"]["board_config"] if letter.isupper()})
    numbers = {letter: chr(ord("A") + place) for place, letter in enumerate(letters)}
    return re.sub(r"[A-Z](?=[+-])", lambda match: numbers.get(match.group(), "?"), answer)
