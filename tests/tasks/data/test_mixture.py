from dataclasses import dataclass

import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import derive_rng
from mmrl.evaluation.metrics.by_task import SuccessRateByTask
from mmrl.transforms.base import EpisodeTransform
from tasks.arithmetic import Arithmetic
from tasks.mixture import Mixture
from tests.tasks.replies import reply
from tests.test_recipes import shrink
from tests.tiny_recipes import Watcher

SUMS, PRODUCTS = Arithmetic((1, 1)), Arithmetic((1, 1), ("*",))


def question(prompt):
    return prompt.messages[0]["content"]


def test_counts_are_kept_and_the_first_problems_of_each_part_are_taken():
    task = Mixture({"sums": SUMS, "products": PRODUCTS}, {"sums": 30, "products": 10}, {"products": 5})
    asked = [question(task[i]) for i in range(len(task))]
    assert sorted(asked) == sorted(question(p[i]) for p, n in ((SUMS, 30), (PRODUCTS, 10)) for i in range(n))
    stored = task.on("held_out")
    assert len(stored) == len(SUMS.on("held_out")) + 5
    assert not set(asked) & {question(stored[i]) for i in range(len(stored))}


def test_the_order_mixes_the_parts_and_follows_from_the_seed():
    def made(seed):
        return Mixture({"sums": SUMS, "products": PRODUCTS}, {"sums": 40, "products": 40}, seed=seed)

    names = [made(0)[i].info["task"] for i in range(80)]
    # 40 of 80 in random order: 20 of the first 40, with a standard deviation of 2.2
    assert 11 <= names[:40].count("sums") <= 29
    assert names == [made(0)[i].info["task"] for i in range(80)]
    assert names != [made(1)[i].info["task"] for i in range(80)]


def test_every_answer_is_judged_by_its_part_and_demonstrations_are_right():
    task = Mixture({"sums": SUMS, "products": PRODUCTS}, {"sums": 20, "products": 20})
    right = [reply(task[i], task.demonstrate(i)) for i in range(len(task))]
    assert all(scores == {"exact": 1.0, "format": 1.0} for scores in task.scores(right))
    assert task.score(reply(task[3], "x")) == {"exact": 0.0, "format": 0.0}
    parts = {"sums": SUMS, "products": PRODUCTS}
    scripts = {question(part[i]): part.script(i) for part in parts.values() for i in range(20)}
    assert all(task.script(i) == scripts[question(task[i])] for i in range(len(task)))
    actual = SuccessRateByTask(score_name="exact")([_scored(task, i, "7") for i in range(len(task))])
    assert actual["products/n"] == 20.0


def _scored(task, index, text):
    episode = reply(task[index], text)
    episode.scores = task.score(episode)
    episode.ended = "done"
    return episode


def test_a_part_is_asked_once_for_all_its_answers_and_sees_its_own_prompts():
    asked = []

    @dataclass(frozen=True)
    class Watched(Arithmetic):
        def scores(self, episodes):
            asked.append([episode.prompt.key for episode in episodes])
            return super().scores(episodes)

    task = Mixture({"a": Watched((1, 1)), "b": PRODUCTS}, {"a": 6, "b": 6})
    task.scores([reply(task[i], "0") for i in range(12)])
    assert len(asked) == 1 and sorted(asked[0]) == [f"arithmetic/train/{i}" for i in range(6)]


def test_prompts_say_where_they_stand():
    task = Mixture({"sums": SUMS}, {"sums": 8})
    order = derive_rng("mixture", "train", 0).permutation(8)
    for i in range(8):
        assert task[i].key == f"mixture/sums/train/{i}" and task[i].index == i
        assert question(task[i]) == question(SUMS[int(order[i])])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"parts": {}}, "parts is empty"),
        ({"counts": {"sum": 1}}, r"counts names \['sum'\], the parts are \['sums'\]"),
        ({"held_out": {"sums": 0}}, r"held_out must be at least 1, got \{'sums': 0\}"),
        ({"split": "test"}, "splits 'train' and 'held_out', not 'test'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Mixture(**{"parts": {"sums": SUMS}, **options})


def test_more_than_a_part_has_is_refused():
    with pytest.raises(ValueError, match=r"1000 problems of part 'sums' are asked for in train, it has 8\d"):
        len(Mixture({"sums": SUMS}, {"sums": 1000}))
    with pytest.raises(IndexError, match="has 8 problems, asked for index 8"):
        Mixture({"sums": SUMS}, {"sums": 8})[8]


class Record(EpisodeTransform):
    """Appends the number of images of each problem that is trained on, by task, to a file."""

    def __init__(self, file):
        self.file = file

    def __call__(self, episodes, ctx):
        with open(self.file, "a") as file:
            file.writelines(f"{e.prompt.info['task']} {len(e.prompt.images)}\n" for e in episodes)
        return episodes


def test_text_and_images_are_trained_on_in_one_iteration(tmp_path):
    words = shrink(("recipe=grpo", "task=text_and_images", "policy=tiny_vlm"), tmp_path)
    words += ["data.num_prompts=32"]
    words += ["trainer.callbacks.watcher={_target_: tests.tiny_recipes.Watcher}"]
    words += [f"data.transforms.record={{_target_: tests.tasks.data.test_mixture.Record, file: '{tmp_path}/seen'}}"]
    cfg = compose(words)
    cfg.data.task.counts = dict.fromkeys(("sums", "digits", "counting"), 80)
    cfg.data.reward = {"_target_": "tests.tiny_recipes.Alternating"}
    cli = CLI(to_lightning(cfg))
    cli.fit()
    assert set((tmp_path / "seen").read_text().splitlines()) == {"sums 0", "digits 1", "counting 1"}
    watcher = next(c for c in cli.trainer.callbacks if isinstance(c, Watcher))
    moved = {name for name, value in watcher.ends[0].items() if not torch.equal(value, watcher.start[name])}
    for part in ("vision_tower", "language_model"):
        assert any(part in name for name in moved), part
