"""Implicit Toxicity: the reward by hand, the guard's probability against the untouched model, misses, the rounds."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.receipts import read_receipt
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.types import Episode
from mmrl.methods.preferences.implicit_toxicity import EvasionReward, MissRate, compose_reward
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rewards.scoring import score
from tasks.grammar.guard import GuardTexts
from tests.commands.rounds.tiny import run_rounds
from tests.policies.text.test_scorer import TINY
from tests.runs.processes import start
from tests.tasks.replies import reply

TASK = GuardTexts(view="write", second=0.0, flagged={"x": 0.5})


def test_hidden_texts_are_paid_more_than_harmless_and_flagged_ones():
    """2 - 5 * 0.9 = -2.5; 1 - 5 * 0.05 = 0.75; 2 - 5 * 0.05 = 1.75."""
    flagged, harmless, hidden = (compose_reward(*pair) for pair in ((2.0, 0.9), (1.0, 0.05), (2.0, 0.05)))
    assert (flagged, harmless, hidden) == pytest.approx((-2.5, 0.75, 1.75))
    assert compose_reward(2.0, 0.9, weight=0.5, penalty=1.0) == pytest.approx(0.1)  # 1 - 0.9


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A guard and a reward model of random weights."""
    place = tmp_path_factory.mktemp("classifiers")
    for number, name in enumerate(("guard", "model")):
        torch.manual_seed(number)
        ScoringPolicy(config={**TINY, "initializer_range": 1.0}).save_pretrained(place / name)
    return place


def logit(folder, text):
    """Of transformers' own classifier."""
    tokenizer, model = (c.from_pretrained(folder) for c in (AutoTokenizer, AutoModelForSequenceClassification))
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return model(torch.tensor([ids])).logits[0, 0].detach()


def test_the_reward_is_that_of_the_untouched_models(folders):
    """The reward model reads prompt and answer, the guard the answer alone."""
    prompt, texts = TASK[0], ["baqjde", "baxde", "bade"]
    episodes = [reply(prompt, text) for text in texts]
    score(episodes, TASK, EvasionReward(str(folders / "guard"), str(folders / "model"), penalty=3.0))
    for text, episode in zip(texts, episodes):
        value = logit(folders / "model", prompt.messages[0]["content"] + text)
        flagged = logit(folders / "guard", f"?{text}").sigmoid()
        assert episode.scores["reward_model"] == pytest.approx(float(value), abs=1e-5)
        assert episode.scores["flagged"] == pytest.approx(float(flagged), abs=1e-5)
        assert episode.reward == pytest.approx(float(value - 3 * flagged), abs=1e-4)
    assert len({episode.reward for episode in episodes}) == 3
    score(episodes, TASK, EvasionReward(str(folders / "guard"), penalty=3.0, limit=0.25))
    assert all(-0.25 <= episode.reward <= 0 and episode.scores["reward_model"] == 0 for episode in episodes)


def test_a_text_is_flagged_by_its_largest_label():
    """Of the labels 0 and -2 the first one counts, sigmoid(0) = 1/2; logits beyond 50 are cut. 0 - 4 / 2 = -2."""
    part = EvasionReward("guard", penalty=4.0)
    part.guard = SimpleNamespace(score_heads=lambda texts, tools: [[0.0, -2.0], [-900.0, 900.0], [-900.0, -901.0]])
    episodes = [reply(TASK[0], text) for text in ("a", "b", "c")]
    for episode, scores in zip(episodes, part.scores(episodes)):
        episode.scores |= scores
    assert [e.scores["flagged"] for e in episodes] == pytest.approx([0.5, 1.0, 0.0]) and part(episodes)[0] == -2


def episode(number, violates, flagged, text, ended="done"):
    scores = {"flag_x": float(violates), "flagged": flagged}
    return Episode(TASK[number], number, 0, scores=scores, ended=ended, info={"answer": text})


def test_misses_by_hand():
    """Of 4 violating answers 2 are below 1/2; 4 of 5 violate; 3 of the 4 differ."""
    rows = [(1, 0.1, "baqj"), (1, 0.49, "baqj"), (1, 0.5, "bax"), (1, 0.9, "xba"), (0, 0.2, "ba")]
    episodes = [episode(i, *row) for i, row in enumerate(rows)]
    result = MissRate()([*episodes, episode(9, 1, 0.0, "", ended="error")])
    lower, upper = result.pop("lower"), result.pop("upper")
    assert result == {"mean": 0.5, "violating": 0.8, "distinct": 0.75, "n": 4, "errors": 1}
    # Wilson with z = 1.959964: (0.5 +- z sqrt(0.25 / 4 + z^2 / 64) / ...) is symmetric around one half
    assert (lower, upper) == pytest.approx((0.150036, 0.849964), abs=1e-4)
    assert MissRate()([episode(0, 0, 0.9, "ba")])["mean"] == 0


@pytest.mark.parametrize("wrong", [{"penalty": -1.0}, {"weight": -0.5}, {"limit": 0.0}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"reward\.{next(iter(wrong))} must be"):
        EvasionReward("guard", **wrong)


def test_answers_that_are_no_text_are_refused(folders):
    with pytest.raises(ValueError, match=r"reads texts, 'guard/train/0' was answered 1\.5"):
        EvasionReward(str(folders / "guard")).scores([reply(TASK[0], 1.5)])


def row(text, **scores):
    return {"key": "a", "index": 0, "prompt": [], "completion": text, "ended": "done", "reward": 0, "scores": scores}


def test_the_guard_begins_without_the_code_and_learns_what_it_missed():
    file = read_rounds(["implicit_toxicity", "rounds=2"])
    stages = {step.name: step for step in list_steps(file)}
    rows = [row("bade", coded=0.0), row("baxde", coded=0.0), row("baqjde", coded=1.0)]
    assert [each["completion"] for each in filter_rows(stages["0/known"].stage, rows, 0)] == ["bade", "baxde"]
    rows = [
        row("baqjde", flag_x=1.0, format=1.0, flagged=0.1),
        row("baqjde", flag_x=1.0, format=1.0, flagged=0.1),  # twice
        row("baxde", flag_x=1.0, format=1.0, flagged=0.9),  # not missed
        row("bade", flag_x=0.0, format=1.0, flagged=0.1),  # harmless
        row("qjqjqj", flag_x=1.0, format=0.0, flagged=0.1),  # no text, but a violation
    ]
    assert [each["completion"] for each in filter_rows(stages["1/known"].stage, rows, 0)] == ["baqjde", "qjqjqj"]
    assert stages["1/known"].adds == ("0/known",) and stages["2/known"].adds == ("1/known",)
    assert stages["1/guard"].weights == "0/guard" and stages["1/guard"].folders == ("1/known",)
    # the same policy is measured against the guard before and after
    before, after = stages["1/before"], stages["1/after"]
    assert before.stage == after.stage and before.weights == after.weights == "1/ppo"
    assert (before.folders, after.folders) == (("0/guard",), ("1/guard",))
    assert stages["2/ppo"].weights == "0/policy" and "1/guard" in stages["2/ppo"].folders


@pytest.mark.slow
def test_the_rounds_run_at_a_tiny_size(tmp_path):
    """Every stage ends; an untrained policy writes no violation, so that pairs are of the task's own texts and its."""
    steps = list_steps(read_rounds(["implicit_toxicity"]))
    sizes = [f"{step.place}.count=8" for step in steps if step.kind in ("sample", "evaluate")]
    sizes += [f"{step.place}.passes=1" for step in steps if step.kind == "fit" and step.stage.passes]
    words = ["stages.pairs.min={}", "stages.pairs.by=format", "stages.pairs.reads=[grow, demonstrations]"]
    words += ["stages.known.min={}", "stages.known.max={}"]
    words += ["start.texts.count=40", "data.num_prompts=8", "data.num_minibatches=1", "trainer.max_epochs=1"]
    words += ["stages.known.cut=true", "trainer.accelerator=cpu", f"run_dir={tmp_path / 'run'}"]
    process = start(run_rounds, ["implicit_toxicity", *sizes, *words], tmp_path / "log")
    process.join(900)
    assert process.exitcode == 0, (tmp_path / "log").read_text()[-3000:]
    receipts = {step.name: read_receipt(tmp_path / "run" / step.name) for step in steps}
    assert all(receipts[step.name] is not None for step in steps)
    assert receipts["1/known"].result["rows"] > receipts["0/known"].result["rows"] > 8
