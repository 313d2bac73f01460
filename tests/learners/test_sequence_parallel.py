"""Runs whose processes divide sequences are the run of one process; each computes its tokens alone."""

import json
from pathlib import Path

import lightning as L
import pytest

from mmrl.distributed.sequence_group import get_dividing_group
from tests.learners.test_several_processes import EVERY, RUNS, check_weights_and_metrics
from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, record, words

OLD = (
    "data.annotators.old={_target_: mmrl.annotators.logprobs.OldLogprobs}",
    "data.pipeline=[old, group_advantage]",
)
CASES = [
    # rows of unequal number, rows of earlier iterations, micro-batches without rows
    ("sequence_parallel", "uneven", 2, ()),
    # a reference, adapters, and scores before the update
    ("fsdp2", "adapters", 2, ()),
    # one prompt, so that three processes have no row of their own; checkpointing
    ("sequence_parallel", "one_prompt", 4, ()),
    # two groups, sharded weights, and prompts of different lengths in one sequence
    ("fsdp2", "packed_prompts", 4, OLD),
]


class Tokens(L.Callback):
    """Writes, for each rank, the tokens of every call of the network and how many processes divided them."""

    def __init__(self, folder: str):
        self.folder, self.calls = Path(folder), set()

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch:
            return
        # after the comparison of divided and whole sequences before training
        for name, model in {"policy": pl_module.policy, **pl_module.models}.items():
            model.model.register_forward_pre_hook(
                lambda model, args, kwargs, name=name: self.note(name, model.training, kwargs), with_kwargs=True
            )

    def note(self, name, training, kwargs):
        if get_dividing_group().size == 1:
            self.calls.add((name, training, 1))
            return
        mask, tokens = kwargs["attention_mask"], kwargs["input_ids"].shape[1]
        whole = mask.division.mask if hasattr(mask, "division") else mask
        self.calls.add((name, training, whole.shape[-1] // tokens))

    def on_fit_end(self, trainer, pl_module):
        (self.folder / f"calls{trainer.global_rank}.json").write_text(json.dumps(sorted(self.calls)))


@pytest.mark.parametrize(
    ("strategy", "name", "ranks", "more"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case[2] > 2 else [], id=f"{case[0]}-{case[1]}") for case in CASES],
)
def test_processes_that_divide_sequences_are_one_run(strategy, name, ranks, more, tmp_path):
    once = fit(tmp_path / "alone", *RUNS[name], *more, *EVERY)
    tokens = (
        f"trainer.callbacks.tokens={{_target_: tests.learners.test_sequence_parallel.Tokens, folder: '{tmp_path}'}}"
    )
    divided = (f"trainer.devices={ranks}", f"strategy={strategy}", "strategy.sequence_parallel=2", tokens)
    run_ranks(["fit", *words(tmp_path, *RUNS[name], *more, *EVERY, *divided)], tmp_path, ranks=ranks)
    check_weights_and_metrics(once, [record(tmp_path, rank) for rank in range(ranks)])
    for rank in range(ranks):
        calls = {tuple(call) for call in json.loads((tmp_path / f"calls{rank}.json").read_text())}
        assert ("policy", True, 2) in calls and ("policy", True, 1) not in calls  # every learning pass
        if name == "adapters":
            assert ("reference", False, 2) in calls
        if more or name == "one_prompt":
            assert ("policy", False, 2) in calls  # the scoring pass; sampling is not divided
