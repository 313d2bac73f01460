"""Process reward models: rows in TRL's format, cross-entropy by hand, training, evaluation, reward."""

import json

import pytest
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.sampling import Sampling
from mmrl.core.types import Context, Episode, Prompt
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.objective import Objective
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.text.process.step_scorer import StepScoringPolicy
from mmrl.rewards.models.process import ProcessRewardModel
from mmrl.rewards.steps import StepReward
from mmrl.rollouts.offline.rated_steps import RatedSteps, ScoredSteps
from tasks.preferences.task import Preferences
from tests.rewards.models.test_row_scorer import build
from tests.tiny_recipes import QUIET

TINY = {"model_type": "qwen2", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
TINY |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256}


def write(folder, rows):
    file = folder / "steps.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def sums(count=24):
    """Sums in two or three steps; a step is wrong where it says so by a letter."""
    rows = []
    for i in range(count):
        labels = [(i + k) % 3 != 0 for k in range(2 + i % 2)]
        steps = [f"{i}+{k}={'y' if right else 'n'}" for k, right in enumerate(labels)]
        rows.append({"prompt": f"{i}:", "completions": steps, "labels": labels})
    return rows


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return StepScoringPolicy(config=TINY)


def context(task, policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return Context(task, engine, policy, Sampling(decode="argmax"), seed=0, iteration=0)


@pytest.mark.parametrize("kind", ["convbert", "fnet"])
def test_a_classifier_that_reads_padding_is_refused_with_its_number(kind, tmp_path):
    folder = build(kind, tmp_path, AutoModelForTokenClassification, 2)
    with pytest.raises(ValueError, match=rf"{kind} computes something else .*padded on the right.* by \d"):
        StepScoringPolicy(path=folder)


@pytest.mark.parametrize("kind", ["bert", "qwen2", "xlnet"])
def test_a_classifier_that_does_not_is_loaded_and_scores_as_alone(kind, tmp_path):
    folder = build(kind, tmp_path, AutoModelForTokenClassification, 2)
    policy, plain = StepScoringPolicy(path=folder), AutoModelForTokenClassification.from_pretrained(folder).eval()
    messages = [{"role": "user", "content": "1+1"}]
    rows = [policy.encode({"messages": messages, "steps": steps}) for steps in (["2"], ["1+1", "is 2", "so 2"])]
    scores = policy.act(policy.collate(rows), Sampling(decode="argmax"), None).output
    for row, probabilities in zip(rows, scores, strict=True):
        with torch.no_grad():
            expected = plain(row["input_ids"][None]).logits[0].softmax(-1)[row["step_ends"], 1]
        assert probabilities == pytest.approx(expected.tolist(), abs=1e-5)


def losses_by_hand(model, tokenizer, rows):
    """TRL's PRMTrainer: token ids of prompt, steps and separators; -100 but for the last token of each separator, which
    has the label of the step; cross-entropy of transformers over the tokens that have one. One row at a time."""
    out = []
    for row in rows:
        ids, labels = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"], []
        labels += [-100] * len(ids)
        for step, label in zip(row["completions"], row["labels"]):
            tokens = tokenizer(step + "\n", add_special_tokens=False)["input_ids"]
            ids, labels = ids + tokens, labels + [-100] * (len(tokens) - 1) + [int(label)]
        with torch.no_grad():
            loss = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
        out.append((float(loss), len(row["labels"])))
    return out


def test_the_loss_is_that_of_a_token_classifier_at_the_separators(tmp_path, policy):
    task = Preferences(write(tmp_path, sums()))
    prompts = [(i, task[i]) for i in range(6)]
    batch = collate(RatedSteps().collect(prompts, context(task, policy)), policy)
    weighted = batch.with_columns(loss_weights=TokenMean()(batch, lambda value: value))
    loss, _ = Objective({"imitation": NegativeLogLikelihood()})(policy(weighted), weighted)
    rows = [
        {"prompt": p.messages[0]["content"], "completions": p.info["steps"], "labels": p.info["step_labels"]}
        for _, p in prompts
    ]
    by_hand = losses_by_hand(policy.model, policy.tokenizer, rows)
    assert len({count for _, count in by_hand}) == 2  # rows of two and of three steps, so that one is padded
    expected = sum(value * count for value, count in by_hand) / sum(count for _, count in by_hand)
    assert float(loss) == pytest.approx(expected, abs=1e-5)


def test_probabilities_in_training_evaluation_and_as_a_reward_are_the_classifiers(tmp_path, policy):
    task = Preferences(write(tmp_path, sums()))
    prompts = [(i, task[i]) for i in range(4)]
    policy.save_pretrained(tmp_path / "prm")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "prm")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "prm")
    expected = []
    for _, prompt in prompts:
        text = prompt.messages[0]["content"]
        for step in prompt.info["steps"]:
            text += step + "\n"
            with torch.no_grad():
                logits = model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits
            expected.append(float(logits[0, -1].softmax(-1)[1]))
    episodes = ScoredSteps().collect(prompts, context(task, policy))
    torch.testing.assert_close(
        torch.tensor([e.info["scores"]["probability"] for e in episodes]), torch.tensor(expected), atol=1e-5, rtol=0
    )
    labels = [label for _, p in prompts for label in p.info["step_labels"]]
    assert [e.info["scores"]["right"] for e in episodes] == [float((p > 0.5) == y) for p, y in zip(expected, labels)]
    scorer = ProcessRewardModel(str(tmp_path / "prm"))
    answers = [Episode(prompt, slot, 0, []) for slot, prompt in prompts]
    scores = scorer.score_steps(answers, [prompt.info["steps"] for _, prompt in prompts])
    torch.testing.assert_close(
        torch.tensor([s for row in scores for s in row]), torch.tensor(expected), atol=1e-5, rtol=0
    )
    # as a reward a completion is split at the separator, which its steps keep
    reward = StepReward({"step_reward": 1.0}, scorer=scorer, aggregation="min")
    answer = Written(prompts[0][1], "\n".join(prompts[0][1].info["steps"]))
    assert reward.scores([answer])[0]["step_reward"] == pytest.approx(min(scores[0]), abs=1e-6)


class Written(Episode):
    """An episode whose output is a text."""

    def __init__(self, prompt: Prompt, text: str):
        super().__init__(prompt, 0, 0, [])
        self.text = text

    @property
    def output(self):
        return self.text


def test_a_model_learns_which_steps_are_right_and_is_measured(tmp_path):
    """The letter at the end of a step decides; calling all steps right would be right in two thirds of them."""
    words = ["method=process_reward", "setting=process_reward", f"task.path={write(tmp_path, sums(120))}", *QUIET]
    words += [f"policy.config.{name}={TINY[name]}" for name in ("hidden_size", "intermediate_size")]
    words += ["policy.config.num_hidden_layers=1", "data.num_prompts=96", "data.num_minibatches=2", "optimizer.lr=1e-2"]
    cli = CLI(to_lightning(compose([*words, "trainer.max_epochs=16", f"run_dir='{tmp_path}/run'"])))
    cli.fit()
    metrics = {name: float(value) for name, value in cli.trainer.callback_metrics.items()}
    rate = {name: value for name, value in metrics.items() if name.startswith("val/") and "/right/" in name}
    assert rate["val/greedy/right/lower"] > 2 / 3 and rate["val/greedy/right/mean"] > 0.9, rate
    assert metrics["val/greedy/scores/right_of_wrong"] > 0.9, metrics
    assert (tmp_path / "run" / "policy" / "config.json").exists()


@pytest.mark.parametrize(
    "row, message",
    [
        ({"labels": [True]}, r":1: column 'labels' must say true or false of each of the 2 completions, got \[True\]"),
        ({"labels": [True, 0.5]}, r":1: column 'labels' must say true or false"),
        ({"completions": ["a", ""]}, r":1: column 'completions' must be a list of steps that are texts"),
    ],
)
def test_bad_rows_are_refused_with_their_place(row, message, tmp_path):
    good = {"prompt": "1:", "completions": ["a", "b"], "labels": [True, False]}
    with pytest.raises(ValueError, match=message):
        len(Preferences(write(tmp_path, [{**good, **row}, good])))


def test_rows_without_steps_are_refused_before_a_model_is_built(tmp_path):
    words = ["method=process_reward", "setting=process_reward", *QUIET, f"run_dir='{tmp_path}/run'"]
    with pytest.raises(ConfigError, match=r"sums\.jsonl:\d+: the row has no steps with labels"):
        CLI(to_lightning(compose(words)))
