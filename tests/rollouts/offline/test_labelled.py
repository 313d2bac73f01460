"""Single answers with labels train KTO; losses of pairs refuse them before anything else is done."""

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.mismatched_kl import swap_prompts
from mmrl.commands.cli import CLI
from mmrl.commands.fit import fit
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.data import check_data
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Prompt, Sampling, Task
from mmrl.data.collate import collate
from mmrl.objectives.preference import KTOLoss
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.pairs import LabelledAnswers, PreferencePairs, ScoredPairs
from tasks.preferences.task import Preferences
from tests.rewards.test_odd_functions import Unbuilt

SIZES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def single(tmp_path):
    rows = [{"prompt": f"{i}+1=", "completion": str(i + 1 + i % 2), "label": i % 2 == 0} for i in range(12)]
    return write(tmp_path / "single.jsonl", rows)


def collect(rollout, task, policy, count):
    ctx = Context(task, None, policy, Sampling(), seed=0, iteration=0)
    return rollout.collect([(slot, task[slot]) for slot in range(count)], ctx)


def test_a_row_is_one_episode_with_its_sign_and_kto_is_the_equation(single):
    task, policy = Preferences(single), TextPolicy(config=dict(SIZES))
    episodes = collect(LabelledAnswers(), task, policy, 6)
    batch = collate(episodes, policy)
    signs = [1.0 if int(task[i].messages[0]["content"][:-3]) % 2 == 0 else -1.0 for i in range(6)]
    assert batch["preference"].tolist() == signs and len(set(signs)) == 2
    assert [episode.output for episode in episodes] == [next(iter(task[i].info.values())) for i in range(6)]
    out = policy(batch)
    ref = torch.full_like(out.logprobs, -2.0)
    loss = KTOLoss()(out, Batch(batch, ref_logprobs=ref, reference_point=torch.full((6,), 0.3)))
    ratio = ((out.logprobs - ref) * batch["action_mask"]).sum(1)
    assert_close(loss, 1 - torch.sigmoid(0.1 * torch.tensor(signs) * (ratio - 0.3)))
    moved = swap_prompts(batch)
    assert torch.equal(moved["obs.input_ids"], batch["obs.input_ids"].roll(-1, 0))


def test_pairs_are_the_same_rows_by_both_rollouts():
    task, policy = Preferences(), TextPolicy(config=dict(SIZES))
    one, other = (
        collate(collect(rollout, task, policy, 3), policy) for rollout in (LabelledAnswers(), PreferencePairs())
    )
    assert other.keys() - one.keys() == {"preference_margin", "preference_probability"}  # of the pair, not of an answer
    assert one.keys() < other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_only_desirable_answers_are_imitated(single):
    task = Preferences(single)
    unwanted = next(i for i in range(len(task)) if "rejected" in task[i].info)
    with pytest.raises(ValueError, match=r"single\.jsonl:\d+: the answer is not desirable"):
        task.demonstrate(unwanted)
    wanted = Preferences(single, desirable_only=True)
    assert 0 < len(wanted) < len(task)
    assert all(wanted.demonstrate(i) == wanted[i].info["chosen"] for i in range(len(wanted)))


def test_losses_of_pairs_refuse_single_answers(single, tmp_path):
    with pytest.raises(ValueError, match=r"single\.jsonl:\d+: the row has one answer .*recipe=kto"):
        PreferencePairs().check_task(Preferences(single))
    with open(single, "a") as file:
        file.write(json.dumps({"prompt": "9+9=", "chosen": "18", "rejected": "0"}) + "\n")
    with pytest.raises(ValueError, match=r"single\.jsonl:13: the row has \['chosen', 'rejected'\] and .*not both"):
        len(Preferences(single))


def test_kto_trains_on_single_answers(single, tmp_path):
    words = ("recipe=kto", "trainer.callbacks.warm_start.stages=null", "trainer.max_epochs=1", "data.num_prompts=6")
    quiet = ("trainer.accelerator=cpu", "trainer.logger=false", "trainer.callbacks.progress=null")
    folder = fit([*words, *quiet, f"task.path={single}", f"run_dir={tmp_path / 'run'}"])
    assert (folder / "policy" / "model.safetensors").is_file()
    with pytest.raises((ValueError, ConfigError), match="recipe=kto learns from single answers"):
        fit(["recipe=dpo", *words[1:], *quiet, f"task.path={single}", f"run_dir={tmp_path / 'other'}"])


@dataclass(frozen=True)
class Rows(Task):
    """Rows of somebody else: the columns of each prompt, and its conversation."""

    rows: tuple[dict[str, Any], ...]
    messages: tuple[dict[str, Any], ...] = ({"role": "user", "content": "1+1="},)

    name = "rows"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Prompt:
        return Prompt(f"rows/train/{index}", self.messages, info={**self.rows[index]}, place=f"rows.csv:{index + 2}")

    def on(self, split: str) -> Task:
        return self

    def score(self, episode: Any) -> dict[str, float]:
        return {}


def data_of(**parts):
    return SimpleNamespace(engine=None, **parts)


GOOD = {"chosen": "2", "rejected": "3"}
PAIRS = {
    "a number": ([GOOD, {"chosen": 2, "rejected": "3"}], r"rows\.csv:3: an answer is 2 \(int\), not a text"),
    "nothing": ([{"chosen": "2", "rejected": None}], r"rows\.csv:2: an answer is None \(NoneType\), not a text"),
    "messages": ([{"chosen": [{"role": "user"}], "rejected": "3"}], r"an answer is \[\{'role'.* \(list\), not a text"),
    "blank": ([GOOD, GOOD, {"chosen": "2", "rejected": " "}], r"rows\.csv:4: an answer is empty"),
    "equal": ([{"chosen": "2", "rejected": "2"}], r"rows\.csv:2: both answers are '2', so none is preferred"),
    "one answer": ([GOOD, {"chosen": "2"}], r"rows\.csv:3: the row has one answer"),
    "other columns": ([{"better": "2", "worse": "3"}], r"prompt 'rows/train/0' has no \['chosen', 'rejected'\]"),
}


@pytest.mark.parametrize("rollout", [PreferencePairs, ScoredPairs])
@pytest.mark.parametrize("name", PAIRS)
def test_the_first_rows_of_pairs_are_read_before_a_model_is_built(name, rollout):
    rows, message = PAIRS[name]
    with pytest.raises(ValueError, match=message):
        check_data(data_of(task=Rows(tuple(rows)), rollout=rollout()))
    check_data(data_of(task=Rows((GOOD,) * 3), rollout=rollout()))


def test_the_first_rows_of_single_answers_are_read_too():
    for rows, message in (
        ([{"completion": "2", "label": True}], "prompt 'rows/train/0' has no labelled answer"),
        ([{"chosen": "2"}, {"rejected": 0.5}], r"rows\.csv:3: an answer is 0\.5 \(float\), not a text"),
    ):
        with pytest.raises(ValueError, match=message):
            check_data(data_of(task=Rows(tuple(rows)), rollout=LabelledAnswers()))
    check_data(data_of(task=Rows(({"chosen": "2"}, {"rejected": "2"})), rollout=LabelledAnswers()))
    with pytest.raises(ValueError, match=r"rows\.csv:2: the row has no messages before its answers"):
        check_data(data_of(task=Rows((GOOD,), messages=()), rollout=LabelledAnswers()))


class BrokenRows(Rows):
    """Rows whose columns have another name than its author remembers."""

    def __getitem__(self, index: int) -> Prompt:
        return Prompt("rows/train/0", self.messages, info={"chosen": self.rows[index]["good"]})


def test_a_task_that_fails_on_its_first_row_is_named():
    with pytest.raises(ConfigError, match=r"data\.task \(BrokenRows\): its first problem raised KeyError: 'good'"):
        check_data(data_of(task=BrokenRows((GOOD,)), rollout=PreferencePairs()))


def test_no_model_is_built_for_rows_without_answers(single, tmp_path):
    words = [f"model.policy._target_={Unbuilt.__module__}.Unbuilt", "policy=tiny_text", f"run_dir={tmp_path}"]
    for recipe, task, message in (
        ("dpo", f"task.path={single}", "recipe=kto learns from single answers"),
        ("kto", "task=arithmetic", "has no labelled answer; take a task such as task=preferences"),
    ):
        with pytest.raises(ConfigError, match=message):
            CLI(to_lightning(compose([f"recipe={recipe}", task, *words])))
