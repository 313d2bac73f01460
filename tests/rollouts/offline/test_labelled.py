"""Single answers with labels train KTO; losses of pairs refuse them before anything else is done."""

import json

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.mismatched_kl import swap_prompts
from mmrl.commands.fit import fit
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Sampling
from mmrl.data.collate import collate
from mmrl.objectives.preference import KTOLoss
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.pairs import LabelledAnswers, PreferencePairs
from tasks.preferences.task import Preferences

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
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


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
