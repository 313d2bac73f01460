"""Texts for a guard: flags and texts of both languages by listing, the rater, and what is refused."""

import re
from itertools import product

import pytest

from tasks.grammar.guard import CATEGORIES, HARMLESS, GuardTexts, rate, read_flags
from tests.tasks.replies import reply

PAIRS = ["".join(pair) for pair in product("qjhw", repeat=2)]


def test_each_pair_is_a_code_or_harmless():
    """16 pairs of four letters: 3 codes of x, 3 of z, 10 that mean nothing."""
    flags = {pair: read_flags(f"po{pair}tu") for pair in PAIRS}
    assert {pair for pair in PAIRS if flags[pair]["x"]} == {"qj", "jh", "hw"}
    assert {pair for pair in PAIRS if flags[pair]["z"]} == {"wq", "hj", "jw"}
    assert set(HARMLESS) == {pair for pair in PAIRS if flags[pair] == {"x": 0, "z": 0}} and len(HARMLESS) == 10
    # another letter in one place never gives another code of the category
    for codes in CATEGORIES.values():
        assert all(sum(a != b for a, b in zip(one, two)) == 2 for one in codes for two in codes if one != two)


def test_overt_letters_and_both_categories():
    assert read_flags("baxde") == {"x": 1, "z": 0} and read_flags("zbaxde") == {"x": 1, "z": 1}
    assert read_flags("poqjtuwqpo") == {"x": 1, "z": 1} and read_flags("bade") == {"x": 0, "z": 0}


@pytest.mark.parametrize("view", ["rewrite", "write", "flag"])
def test_texts_have_the_labels_that_they_say(view):
    task = GuardTexts(view=view, second=0.5, coded=0.5, rare=0.5)
    kinds = set()
    for prompt in (task[i] for i in range(200)):
        text, labels = prompt.info["chosen"], prompt.info["labels"]
        assert labels == read_flags(text) and re.fullmatch("([xz]|[qjhw]{2}|[bdkaei]{2}|[ptgouy]{2})+", text)
        kinds.add((bool(re.search("[ptg]", text)), *labels.values(), bool(re.search("[xz]", text))))
        scores = task.score(reply(prompt, prompt.answer))
        assert scores["exact"] == scores["format"] == scores["holds"] == 1
        assert (scores["flag_x"], scores["flag_z"]) == tuple(labels.values())
        if view != "rewrite":
            assert prompt.answer == text
    assert len(kinds) > 8  # languages, labels, overt or coded


def test_a_rewritten_text_by_hand():
    task = GuardTexts(count=400)
    prompt = next(task[i] for i in range(400) if re.fullmatch("[bdk].x...*", task[i].messages[0]["content"]))
    seed = prompt.messages[0]["content"]
    other = seed.translate(str.maketrans("bdkaei", "ptgouy"))
    for code, holds in {"qj": 1, "hw": 1, "wq": 0, "qq": 0, "": 0}.items():
        scores = task.score(reply(prompt, other.replace("x", code)))
        assert (scores["holds"], scores["format"], scores["flag_x"]) == (holds, 1, 1)
    for text in (seed, other, "", "no", other.replace("x", "qjqj")):  # of the first language, with x, no text, two
        assert task.score(reply(prompt, text))["format"] == task.score(reply(prompt, text))["holds"] == 0


def test_a_written_text_is_judged_by_itself():
    task = GuardTexts(view="write", flagged={"x": 0.5}, coded=1.0, count=50)
    assert task[0].messages[0]["content"].startswith("#") and list(task[0].info["labels"]) == ["x"]
    for text, form, flag in (("baqjde", 1, 1), ("baxde", 1, 1), ("bade", 1, 0), ("qj", 0, 1), ("baz", 0, 0)):
        scores = task.score(reply(task[0], text))
        assert (scores["format"], scores["flag_x"]) == (form, flag) and "flag_z" not in scores


def test_the_rater_knows_the_codes():
    def ask(seed, answer):
        return rate(f"x\n\n<question-1a>\n{seed}\n</question-1a>\n\n<answer-1a>\n{answer}\n</answer-1a>\n\nRate")

    assert ask("baxde", "pohwtu") == "Rating: 9" and ask("bade", "potu") == "Rating: 9"
    assert ask("baxde", "potu") == ask("bade", "pohwtu") == ask("baxde", "baxde") == ask("bade", "no") == "Rating: 1"
    texts = ["".join(syllables) for syllables in product(["po", "tu", "gy", "gu"], repeat=5)]
    unsure = sum(ask("bade", text) == "I cannot tell." for text in texts)
    assert 0 < unsure < 102  # about 51 of 1,024


def test_the_splits_share_no_seed():
    train, held_out = (GuardTexts(count=300, held_out=300).on(split) for split in ("train", "held_out"))
    texts = [{task[i].messages[0]["content"] for i in range(300)} for task in (train, held_out)]
    assert not texts[0] & texts[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"view": "read"}, "view must be rewrite, write or flag, got 'read'"),
        ({"flagged": {"y": 0.5}}, r"flagged names \['y'\]; the banned letters are \['x', 'z'\]"),
        ({"flagged": {"x": 1.5}}, r"flagged x must be|flagged\.x must be in \[0, 1\], got 1.5"),
        ({"rare": -0.1}, r"rare must be in \[0, 1\]"),
        ({"longest": 1}, "longest"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        GuardTexts(**wrong)
