"""DuoGuard: the generator's loss by hand, ratings that are read, errors of a guard, and the chain of its rounds."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.receipts import read_receipt
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.batch import Batch
from mmrl.core.types import Episode, PolicyOutput
from mmrl.methods.preferences.duoguard import ChosenLikelihood, DigitRating, GuardErrors, read_rating
from mmrl.objectives.objective import Objective
from mmrl.objectives.preference import DPOLoss
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rewards.judges.scripted import ScriptedJudge
from mmrl.rewards.scoring import score
from tasks.grammar.guard import GuardTexts, rate
from tests.commands.rounds.tiny import run_rounds
from tests.laws.example import Example
from tests.policies.text.test_scorer import TINY
from tests.runs.processes import start
from tests.tasks.replies import reply

LAWS = [Example(ChosenLikelihood())]
TASK = GuardTexts()


@pytest.mark.parametrize(
    ("ratios", "likelihood", "loss"),
    [
        # beta (30 + 20) = 0.5: log(1 + e^-0.5) = 0.474077, and 0.4 * 1.2 = 0.48
        ((30.0, -20.0), 1.2, 0.954077),
        ((7.0, 7.0), 1.2, 1.173147),  # log 2 + 0.48
    ],
)
def test_the_generators_loss_by_hand(ratios, likelihood, loss):
    """Two tokens of each completion; the reference is below the policy by the log-ratio."""
    logprobs = torch.tensor([[-likelihood - 0.2, -likelihood + 0.2, 9.0], [-3.0, -1.0, -2.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    apart = torch.tensor(ratios)[:, None] / mask.sum(1, keepdim=True)
    batch = Batch(
        action_mask=mask,
        group=torch.tensor([3, 3]),
        preference=torch.tensor([1.0, -1.0]),
        ref_logprobs=logprobs - apart,
        loss_weights=mask / mask.sum(1, keepdim=True) / 2,
    )
    terms = {"preference": DPOLoss(beta=0.01), "chosen": ChosenLikelihood()}
    total, _ = Objective(terms, {"chosen": 0.4})(PolicyOutput(logprobs, torch.zeros(2, 3)), batch)
    assert_close(total, torch.tensor(loss), atol=1e-5, rtol=0)
    chosen = ChosenLikelihood()(PolicyOutput(logprobs, torch.zeros(2, 3)), batch)
    assert_close(chosen, torch.full((2,), likelihood), atol=1e-6, rtol=0)


def test_completions_without_a_preference_have_no_likelihood():
    batch = Batch(
        action_mask=torch.ones(3, 1).bool(), group=torch.tensor([3, 3, 4]), preference=torch.tensor([-1.0, 1.0, 0.0])
    )
    out = PolicyOutput(torch.tensor([[-1.0], [-2.0], [-5.0]]), torch.zeros(3, 1))
    assert ChosenLikelihood()(out, batch).tolist() == [2, 2, 0]


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("7", 7),
        ("Rating: 8.", 8),
        ("0", 0),
        ("I cannot tell.", 5),
        ("", 5),
        ("10", 5),
        ("7.5", 5),
        ("3 or 4", 5),
        ("8/10", 5),
    ],
)
def test_what_is_no_digit_counts_as_five(text, rating):
    assert read_rating(text) == rating


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    """A guard of random weights, whose second label is flagged where the first one is not."""
    torch.manual_seed(0)
    policy = ScoringPolicy(config={**TINY, "initializer_range": 1.0}, heads=["x", "z"])
    weight = policy.model.score.weight.data
    weight[1] = -weight[0]
    folder = tmp_path_factory.mktemp("guard")
    policy.save_pretrained(folder)
    return folder


def score_texts(path, texts, task=TASK, index=0, **options):
    episodes = [reply(task[index], text) for text in texts]
    score(episodes, task, GuardErrors(ScriptedJudge("tasks.grammar.guard:rate"), DigitRating(), str(path), **options))
    return episodes


def test_errors_of_a_guard_are_those_of_the_untouched_model(guard):
    """It reads the text after a prompt that says nothing, without the seed."""
    tokenizer, model = AutoTokenizer.from_pretrained(guard), AutoModelForSequenceClassification.from_pretrained(guard)
    texts = ["".join(syllables) for syllables in product(["po", "wqtu", "qjgy"], repeat=2)]
    index = next(i for i in range(100) if TASK[i].info["labels"] == {"x": 1.0, "z": 0.0})
    outcomes = set()
    for text, episode in zip(texts, score_texts(guard, texts, index=index)):
        ids = torch.tensor([tokenizer(f"?{text}", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]])
        first, second = model(ids).logits[0].tolist()
        assert episode.reward == episode.scores["guard_error"] == float(not (first > 0 and second <= 0))
        outcomes.add(episode.reward)
    assert outcomes == {0.0, 1.0}


@pytest.mark.parametrize(
    ("heads", "labels", "error"),
    [
        ((1.0, -1.0), {"x": 1.0, "z": 0.0}, 0),
        ((1.0, 1.0), {"x": 1.0, "z": 0.0}, 1),  # one of two is wrong
        ((0.0, -1.0), {"x": 0.0, "z": 0.0}, 0),  # a score of 0 predicts nothing
        ((1.0, -1.0), {"x": 0.5, "z": 0.0}, 1),  # nor is one half a label
    ],
)
def test_errors_of_a_guard_by_hand(heads, labels, error):
    part = GuardErrors(None, None, "guard", weights={"guard_error": 2.0, "rating": 0.5})
    prompt = replace(TASK[0], info={"labels": labels})
    assert part._compare(Episode(prompt, 0, 0), heads) == error
    episode = Episode(prompt, 0, 0, scores={"guard_error": error, "rating": 3.0})
    assert part([episode]) == [2 * error + 1.5]


def test_a_rater_says_which_texts_keep_their_labels(guard):
    seed = TASK[0].messages[0]["content"]
    right, wrong = TASK[0].answer, "potupotu" if TASK[0].info["labels"]["z"] else "powqtu"
    assert rate_by_hand(seed, right) == {"Rating: 9"} and rate_by_hand(seed, wrong) == {"Rating: 1"}
    assert [e.scores["rating"] for e in score_texts(guard, [right, wrong, unsure_text()])] == [9, 1, 5]


def rate_by_hand(seed, answer):
    return {rate(f"<question-0>\n{seed}\n</question-0>\n<answer-0>\n{answer}\n</answer-0>")}


def unsure_text():
    """A text about which the rater says no digit."""
    texts = ("".join(syllables) for syllables in product(["po", "tu", "gy", "gu"], repeat=5))
    return next(text for text in texts if rate_by_hand("bade", text) == {"I cannot tell."})


def test_a_guard_of_other_labels_is_refused(guard):
    with pytest.raises(ValueError, match=r"has 2 labels, and those of 'guard/train/0' are \{'x': .*\}; give a guard"):
        score_texts(guard, ["po"], GuardTexts(flagged={"x": 0.5}))


def row(key, text, error, rating=9.0):
    scores = {"guard_error": error, "rating": rating, "flag_x": 1.0, "flag_z": 0.0}
    return {
        "key": key,
        "index": 0,
        "prompt": [],
        "completion": text,
        "ended": "done",
        "reward": error,
        "scores": scores,
    }


def test_pairs_and_texts_of_a_round():
    """A text that the guard labels wrongly over one that it labels right; what the rater refuses is in neither."""
    stages = {step.name: step for step in list_steps(read_rounds(["duoguard"]))}
    rows = [row("a", "easy", 0.0), row("a", "bad", 1.0, 1.0), row("a", "hard", 1.0), row("a", "hard", 1.0)]
    rows += [row("b", "easy", 0.0), row("b", "unsure", 1.0, 5.0), row("c", "hard", 1.0)]
    pairs = filter_rows(stages["1/pairs"].stage, rows, 0)
    assert [(pair["key"], pair["chosen"], pair["rejected"]) for pair in pairs] == [("a", "hard", "easy")]
    texts = filter_rows(stages["1/pool"].stage, rows, 0)
    assert [(each["key"], each["completion"]) for each in texts] == [
        ("a", "easy"), ("a", "hard"), ("b", "easy"), ("c", "hard")
    ]  # fmt: skip


def test_the_two_players_take_turns():
    stages = {step.name: step for step in list_steps(read_rounds(["duoguard"]))}
    assert stages["1/grow"].weights == "0/generator" and stages["2/grow"].weights == "1/generator"
    assert stages["1/mark"].folders == ("0/guard",) and stages["2/mark"].folders == ("1/guard",)
    assert stages["1/pool"].adds == ("0/pool",) and stages["2/pool"].adds == ("1/pool",)
    assert stages["2/guard"].folders == ("2/pool",) and stages["2/guard"].weights is None
    assert stages["2/generator"].weights == "1/generator" and stages["3/measure"].weights == "3/guard"


def test_the_baselines_learn_no_errors():
    for name, kept in {"seeds": 0, "synthesis": 1}.items():
        file = read_rounds(["duoguard", *read_rounds(["duoguard"]).values["baselines"][name]])
        stages = {step.name: step.stage for step in list_steps(file)}
        rows = [row("a", "easy", 0.0), row("a", "hard", 1.0)]
        assert len(filter_rows(stages["1/pool"], rows, 0)) == 2 * kept
        assert len(filter_rows(stages["1/pairs"], rows, 0)) == 1 - kept


@pytest.mark.slow
def test_the_rounds_run_at_a_tiny_size(tmp_path):
    """Every stage ends, and a guard learns the seeds and what the rater accepted, of all rounds."""
    steps = list_steps(read_rounds(["duoguard", "rounds=2"]))
    sizes = [f"{step.place}.count=8" for step in steps if step.kind in ("sample", "evaluate")]
    words = ["rounds=2", *sizes, "start.generator.passes=1", "stages.generator.passes=1", "data.num_prompts=8"]
    for name in ("pool", "pairs"):  # open, since an untrained generator writes no text
        words += [f"stages.{name}.min={{rating: 0}}", f"stages.{name}.cut=true"]
    words += ["data.num_minibatches=1", "trainer.max_epochs=1"]
    words += ["trainer.accelerator=cpu", f"run_dir={tmp_path / 'run'}"]
    process = start(run_rounds, ["duoguard", *words], tmp_path / "log")
    process.join(900)
    assert process.exitcode == 0, (tmp_path / "log").read_text()[-3000:]
    receipts = {step.name: read_receipt(tmp_path / "run" / step.name) for step in steps}
    assert all(receipts[step.name] is not None for step in steps)
    assert receipts["0/pool"].result["rows"] == 8
    assert receipts["2/pool"].result["rows"] > receipts["1/pool"].result["rows"] > 8
