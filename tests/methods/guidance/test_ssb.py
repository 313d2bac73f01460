"""Semantic soft bootstrapping: hints from attempts, contexts and the loss by hand."""

import csv
from dataclasses import replace

import pytest
import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Collector, Completion, Context, Episode, PolicyOutput, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.guidance.ssb import HintedAnswers, HintedContext, HintedExamples, KeepHintedSuccesses, add_hint
from mmrl.objectives.distillation import GKDLoss
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.base import Rollout
from tasks.arithmetic import Arithmetic
from tests.composed_words import compose_words

CONFIG = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 2, "initializer_range": 0.5}  # fmt: skip
SILENT = ("trainer.callbacks.progress=null", "trainer.logger.tensorboard=null", "trainer.enable_progress_bar=false")
PROMPT = Prompt("sums/train/0", ({"role": "user", "content": "1+2="},))


def attempt(output, reward, ended="done"):
    done = Completion({}, torch.zeros(1).long(), torch.zeros(1), torch.ones(1).bool(), output)
    return Episode(PROMPT, 0, 0, [Turn(done)], reward=reward, ended=ended)


def test_the_hint_shows_a_right_and_the_most_frequent_wrong_attempt():
    rollout = HintedAnswers(message="+{right}-{wrong}")
    tries = [attempt("4", 0.0), attempt("5", 0.0), attempt("3", 1.0), attempt("5", 0.0), attempt("03", 1.0)]
    assert rollout.write_hint(tries) == "+3-5"
    assert rollout.write_hint(tries[:2]) is None and rollout.write_hint(tries[2:3]) is None
    assert rollout.write_hint([tries[0], attempt("3", 1.0, "error")]) is None
    assert add_hint(PROMPT.observation, "!")["messages"][-1]["content"] == "1+2=!"
    images = {"messages": ({"role": "user", "content": [{"type": "image"}]},)}
    assert add_hint(images, "!")["messages"][0]["content"] == [{"type": "image"}, {"type": "text", "text": "!"}]


class Alternating(Collector):
    """Every second attempt at the even prompts is right, none at the odd ones; answers are right."""

    def score(self, episodes):
        for number, episode in enumerate(episodes):
            episode.reward = float(episode.group % 2 == 0 and number % 2 == 0)


def collect(policy):
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(None, engine, policy, Sampling(max_tokens=4), 0, 0, collector=Alternating())
    prompts = [(slot, replace(PROMPT, key=f"sums/train/{slot}")) for slot in range(3)]
    return HintedAnswers(attempts=2).collect(prompts, ctx), ctx


def test_answers_are_rows_of_the_plain_prompt_with_the_hinted_one_beside_it():
    torch.manual_seed(0)
    policy = TextPolicy(config=dict(CONFIG)).eval()
    episodes, ctx = collect(policy)
    assert [episode.info["hint"] is not None for episode in episodes] == [True, False, True]
    hinted = HintedContext()(episodes, ctx)
    batch = collate(hinted, policy)
    plain = policy.encode(PROMPT.observation)["input_ids"]
    assert batch["prompt_length"].tolist() == [len(plain)] * 3
    widths = [len(turn.completion.others["hinted"]["input_ids"]) for e in hinted for turn in e.turns]
    assert widths[1] == len(plain) and min(widths[0], widths[2]) > len(plain)
    # what was sampled is what the hinted context says
    there = policy(batch.with_context("hinted")).logprobs
    mask = batch["action_mask"]
    assert_close(there[mask], batch["behavior_logprobs"][mask], atol=1e-4, rtol=0)
    assert (policy(batch).logprobs - there)[0][mask[0]].abs().max() > 1e-3
    for episode in hinted:
        episode.reward = 1.0
    assert KeepHintedSuccesses()(hinted, ctx) == [hinted[0], hinted[2]]
    hinted[0].reward = 0.0
    assert KeepHintedSuccesses()(hinted, ctx) == [hinted[2]]


def test_the_loss_by_hand():
    # softmax([2, 0, 0]) = [.786986, .106507, .106507] against softmax([1, 0, 0]) = [.576117, .211942, .211942]:
    # .098886 nats, and 0 where the logits are equal
    teacher = torch.tensor([[[2.0, 0, 0], [0, 1, 0]]]).log_softmax(-1)
    student = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]).log_softmax(-1)
    zero = torch.zeros(1, 2)
    there = PolicyOutput(zero, zero, extra={"choice_logprobs": teacher})
    out = PolicyOutput(zero, zero, extra={"choice_logprobs": student}, others={"reference@hinted": there})
    loss = GKDLoss(0.0, teacher="reference@hinted")(out, {"action_mask": torch.ones(1, 2).bool()})
    assert_close(loss, torch.tensor([[0.098886, 0.0]]), atol=1e-6, rtol=0)


class AsTheyAre(Rollout):
    """The prompts that it was given, without an answer."""

    def collect(self, prompts, ctx):
        return [Episode(prompt, slot, 0) for slot, prompt in prompts]


def test_the_start_of_the_recipe_has_seen_the_hints_of_its_rollout():
    """About half of the prompts end in the message that the rollout writes of a right and a wrong attempt."""
    plain = compose_words(("recipe=ssb",))
    (word,) = [word for word in plain.trainer.callbacks.warm_start.stages.sft if "rollout" in word]
    spec = OmegaConf.create(word.partition("=")[2])
    assert get_class(spec.pop("_target_")) is HintedExamples and spec.pop("rollout")._target_.endswith("Demonstrations")
    task, rollout = Arithmetic(), instantiate(plain.data.rollout)
    ctx = Context(task, None, None, Sampling(), seed=0, iteration=0)
    episodes = HintedExamples(AsTheyAre(), **spec).collect([(slot, task[slot]) for slot in range(400)], ctx)
    hinted = [e for e in episodes if e.prompt.messages != task[e.prompt.index].messages]
    assert len(hinted) / len(episodes) == pytest.approx(0.5, abs=0.1)
    scored = []
    for episode in hinted:
        index, content = episode.prompt.index, episode.prompt.messages[-1]["content"]
        start, _, rest = content.partition("\nRight: ")
        right, wrong = rest.rstrip("\n").split("\nWrong: ")
        assert (start, right) == (task[index].messages[-1]["content"], task.demonstrate(index))
        assert content == start + rollout.write_hint([attempt(right, 1.0), attempt(wrong, 0.0)])
        scored.append(right != wrong)
    assert sum(scored) / len(scored) > 0.9


@pytest.mark.slow
def test_the_recipe_has_rows_in_every_iteration_at_its_own_start_and_size(tmp_path):
    """With a start that never saw a hint, 0 or 1 of 256 problems gave a row."""
    words = ["recipe=ssb", f"run_dir='{tmp_path}'", "trainer.max_epochs=4", "data.evaluation=null", *SILENT]
    CLI(to_lightning(compose(words))).fit()
    with (tmp_path / "metrics.csv").open() as file:
        rows = [float(row["rollout/rows"]) for row in csv.DictReader(file) if row["rollout/rows"]]
    assert len(rows) == 4 and min(rows) >= 50


def test_settings_are_checked():
    with pytest.raises(ValueError, match="attempts"):
        HintedAnswers(attempts=1)
    with pytest.raises(ValueError, match="message"):
        HintedAnswers(message="{right}")
    with pytest.raises(ValueError, match="message"):
        HintedExamples(AsTheyAre(), message="{wrong}")
