"""Full scores of reasoning-gym for wrong answers, on plain texts: without the package."""

import pytest

from tasks.reasoning_gym.strictness import limit_score


@pytest.mark.parametrize(
    ("dataset", "entry", "answer", "most"),
    [
        ("coin_flip", {"answer": "0.3125"}, "0.31", 4 / 6),
        ("coin_flip", {"answer": "0.3125"}, "5/16", 1),
        ("coin_flip", {"answer": "0.125"}, "0", 1 / 5),
        ("puzzle24", {"answer": "3*8*1*1", "metadata": {"numbers": [8, 3, 1, 1]}}, "1*8*1*3", 1),
        ("puzzle24", {"answer": "3*8*1*1", "metadata": {"numbers": [8, 3, 1, 1]}}, "6*4*1*1", 0.01),
        ("game_of_life_halting", {"answer": "False"}, " False\n", 1),
        ("game_of_life_halting", {"answer": "False"}, "True", 0),
        ("number_sorting", {"answer": "['1.5']"}, "['NaN']", 0),
        ("gcd", {"answer": "3"}, "3", 1),
    ],
)
def test_full_scores_that_are_not_earned_are_limited(dataset, entry, answer, most):
    assert limit_score(dataset, answer, entry) == pytest.approx(most)


GRID = "1 0 1\n0 1 0"
ROLES = "Victoria is a knight, and Jacob is a knave."
HANOI = "Move disk 1 from Peg 1 to Peg 3\nMove disk 2 from Peg 1 to Peg 2"
BOXES = '[{"Agent[0.5, 1.5]": "move(box_red, square[0.5, 0.5])"}, {"Agent[0.5, 0.5]": "move(box_red, target_red)"}]'


def time_intervals(kind, answer):
    return "time_intervals", {"answer": answer, "metadata": {"task_type": kind}}


PROBLEMS = {
    "count": ("gsm_symbolic", {"answer": "28080", "question": "It is 5% more. How many dollars does she have?"}),
    "share": ("gsm_symbolic", {"answer": "40", "question": "What percentage of the puppies have spots?"}),
    "grid": ("kakurasu", {"answer": GRID}),
    "word": ("spell_backward", {"answer": "noremopyh"}),
    "days": time_intervals("date", "5 days"),
    "clock": time_intervals("time_ms", "01:45:29.840"),
    "both": time_intervals("datetime_tz", "67 days, 10:32"),
    "letters": ("cryptarithm", {"answer": "A=7,G=0,L=5"}),
    "roles": ("knights_knaves", {"answer": ROLES}),
    "logic": ("propositional_logic", {"answer": "(Q ∨ P)"}),
    "disks": ("tower_of_hanoi", {"answer": HANOI}),
    "boxes": ("boxnet", {"answer": None}),
}
RIGHT = {
    "count": ("28080", " 28080\n", "28080.", "28,080", "28080.0", "$28080", "+28080"),
    "share": ("40", "40%", "40 %.", "40.0"),
    "grid": (GRID, f" {GRID}\n", "101\n010", "1, 0, 1\n0, 1, 0", "[[1,0,1],\n[0,1,0]]", "- 1 0 1\n- 0 1 0", f"{GRID}."),
    "word": ("noremopyh", "NoremopyH\n"),
    "days": ("5 days", "5", "5 Days.", "5days", " 5 day\n"),
    "clock": ("01:45:29.840", "1:45:29.840", " 01:45:29.840\n"),
    "both": ("67 days, 10:32", "67 days,10:32"),
    "letters": ("A=7,G=0,L=5", "L=5, A = 7, G=0\n", "A=7,\nG=0,\nL=5"),
    "roles": (
        *(
            ROLES,
            ROLES[:-1],
            ROLES.lower(),
            "Jacob is a knave and Victoria is a knight",
            "(Victoria knight), (Jacob knave)",
        ),
        *("- Victoria is a knight\n- Jacob is a knave", "1. Victoria is a knight.\n2. Jacob is a knave."),
    ),
    "logic": ("(Q ∨ P)", "Q∨P", "Q ∨ P.", "¬(¬Q ∧ ¬P)", "P ∨ Q ∧ ¬¬P → (Q ↔ P)"),
    "disks": (HANOI, f"  {HANOI}\n", HANOI.replace("\n", "\n\n"), HANOI.replace("\n", "\r\n")),
    "boxes": (BOXES, BOXES.replace("}, {", "},\n {"), BOXES.replace(", 0.5]", ",0.5]")),
}
WRONG = {
    "count": ("-28080", "28080/44", "28080%", "28080 44", "x28080", "1-28080"),
    "share": ("-40%", "40/2", "40%%"),
    "grid": (f"-{GRID}", f"{GRID}x", f"{GRID}%", "1 0 1 2\n0 1 0", "1 0 -1\n0 1 0", f"not {GRID}", "- -1 0 1\n- 0 1 0"),
    "word": ("noremopyhx", "noremopyh0", "noremopyhainomma", "noremopyh."),
    "days": ("5 daysx", "5 days0", "5 -days", "5 hours", "5 days00:34:28", "-5 days", "5 xdays"),
    "clock": ("-01:45:29.840", "01:45:15.14840", "01:45:29.0840", "01:45:29.840:7", "01:46:-31.840", "01:45:29.84"),
    "both": ("67 days, 10:32:00:17", "67 days, 10:32,5", "68 days, -13:-28", "67 days, 10:32 x"),
    "letters": ("A=7,G=00,L=5", "A=07,G=0,L=5", "A=7,G=5,G=0,L=5", "A=7,G=-0,L=5"),
    "roles": (
        *(
            "Victoria is a knight, and not Jacob is a knave.",
            f"-({ROLES})",
            f"{ROLES}%",
            f"1{ROLES}",
            f"I think {ROLES}",
        ),
        *("Victoria is a knight, andx Jacob is a knave.", "Victoria is a knight, and Victoria Jacob is a knave."),
    ),
    "logic": ("(Qx ∨ P)", "(-Q ∨ P)", "(Q ∨ P", "so Q ∨ P", "(q ∨ p)", "QP ∨ P", "Q ∨ ∨ P", "()", "(0Q ∨ P)", "Q ¬P"),
    "disks": (f"-{HANOI}", f"not {HANOI}", f"1-{HANOI}", f"{HANOI} or 3", HANOI.replace("\n", "\nx")),
    "boxes": (
        *(
            BOXES.replace("[0.5, 0.5]", "[-0.5, 0.5]"),
            BOXES.replace("Agent", "NotAgent"),
            BOXES.replace("0.5]", "0.5] x"),
        ),
        *(BOXES.replace("move(", "move(not "), BOXES.replace("_red)", "_red) or not")),
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_ordinary_forms_keep_the_full_score_and_wrong_answers_lose_it(name):
    dataset, entry = PROBLEMS[name]
    assert [text for text in RIGHT[name] if limit_score(dataset, text, entry) != 1] == []
    assert [text for text in WRONG[name] if limit_score(dataset, text, entry) >= 1] == []


def test_a_long_conclusion_is_not_read():
    dataset, entry = PROBLEMS["logic"]
    assert limit_score(dataset, "¬" * 1_999 + "Q", entry) == 1
    assert limit_score(dataset, "¬" * 2_000 + "Q", entry) == 0
