"""Episodes that somebody recorded: cloning from a dataset is the same iteration with this rollout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mmrl.datasets.base import Dataset
from mmrl.datasets.opened import open_dataset
from mmrl.datasets.recorded import Decision, Recorded
from mmrl.evaluation.contract import differences
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.demonstrations import seeded
from mmrl.rollouts.env import mask_unplayed
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class RecordedEpisodes(Rollout):
    """Every prompt is answered once, by a recorded episode cut into the policy's chunks.

    A prompt of the task `recorded` names its episode; prompt i of any other task is given episode i, modulo their
    number. At the end of an episode a chunk is filled up with the last action, and the choices of the filled control
    steps are masked. Episodes that failed are left out.

    Args:
        path: of the dataset: a LeRobotDataset v3.0 or Minari folder, or a robomimic file.
        stride: control steps between two decisions that are learnt from; None for the policy's chunk, as the episode
            would have been played. 1 learns from every control step.
        failed: learn from episodes that are flagged as failures too.
        keep: remember each episode's turns, for small sets that are learnt from many times.
        any_contract: take episodes that were recorded in another simulator than the task's.
    """

    samples = False

    writes = frozenset({"seed"})

    def __init__(
        self,
        path: str | None = None,
        stride: int | None = None,
        failed: bool = False,
        keep: bool = False,
        any_contract: bool = False,
    ):
        if path is None:
            raise ValueError("rollout=recorded needs a dataset: rollout.path=FOLDER, or task=recorded task.path=FOLDER")
        if stride is not None and stride < 1:
            raise ValueError(f"rollout.stride must be at least 1, got {stride}")
        self.path, self.stride, self.failed, self.keep, self.any_contract = path, stride, failed, keep, any_contract
        self._dataset: Dataset | None = None
        self._numbers: list[int] = []
        self._kept: dict[int, Episode] = {}

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        dataset = self._opened(ctx)
        ctx.progress("rollout", 0, len(prompts))
        episodes = []
        for slot, prompt in prompts:
            episodes.append(self._episode(dataset, slot, prompt, ctx))
            ctx.progress("rollout", len(episodes), len(prompts))
        return episodes

    def _opened(self, ctx: Context) -> Dataset:
        """The dataset, checked against the task at the first call."""
        if self._dataset is None:
            dataset = open_dataset(self.path)
            stated, ours = dataset.contract, ctx.task.contract()
            if stated and ours and not self.any_contract and (lines := differences(stated, ours, "recorded")):
                raise ValueError(
                    f"rollout.path={self.path} was recorded in another simulator than the task's:\n  "
                    + "\n  ".join(lines)
                    + "\nset the sim's options to those of the recording, or rollout.any_contract=true"
                )
            dataset.check()
            flagged = [dataset.success(n) for n in range(len(dataset))]
            self._numbers = [n for n, success in enumerate(flagged) if self.failed or success is not False]
            if not self._numbers:
                raise ValueError(f"rollout.path={self.path}: all {len(dataset)} episodes failed; rollout.failed=true")
            self._dataset = dataset
        return self._dataset

    def _episode(self, dataset: Dataset, slot: int, prompt: Prompt, ctx: Context) -> Episode:
        number = prompt.info.get("recorded", self._numbers[prompt.index % len(self._numbers)])
        made = self._kept.get(number)
        if made is None:
            made = _turns(dataset[number], self.stride, prompt, ctx)
            if self.keep:
                self._kept[number] = made
        return Episode(
            prompt,
            group=slot,
            sample_index=0,
            turns=seeded(made.turns, slot, ctx),
            ended=made.ended,
            source="demo",
            info=dict(made.info),
        )

    def close(self) -> None:
        """Give the files back."""
        if self._dataset is not None:
            self._dataset.close()


def _turns(recorded: Recorded, stride: int | None, prompt: Prompt, ctx: Context) -> Episode:
    chunk = ctx.policy.chunk
    decisions = list(recorded.decisions(chunk, stride))
    scores = {} if recorded.success is None else {"success": float(recorded.success)}
    return Episode(
        prompt,
        group=0,
        sample_index=0,
        turns=[Turn(_completion(decision, chunk, ctx), decision.reward) for decision in decisions],
        ended=recorded.ended,
        info={"scores": scores, "seed": recorded.seed, "recorded": recorded.where},
    )


def _completion(decision: Decision, chunk: int | None, ctx: Context) -> Completion:
    action = ctx.policy.encode_demonstration(decision.raw, decision.output)
    completion = Completion(
        observation=ctx.policy.encode(decision.raw),
        action=action,
        logprobs=torch.zeros(len(action)),
        mask=torch.ones(len(action), dtype=torch.bool),
        output=decision.output,
        extra={"temperature": torch.tensor(1.0)},
    )
    if chunk is not None:
        mask_unplayed(completion, decision.executed)
    return completion
