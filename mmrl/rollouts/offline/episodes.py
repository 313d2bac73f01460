"""Rollout that replays the episodes of a dataset, for imitation and offline learning."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.types import Completion, Context, Episode, Prompt, Task, Turn
from mmrl.datasets.base import Dataset
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.hub import locate_dataset
from mmrl.datasets.offline_episodes import Decision, OfflineEpisode
from mmrl.files.contract import differences
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.env.episodic import mask_unplayed
from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstration


class OfflineRollout(Rollout):
    """Offline rollout: one episode of a dataset per prompt, cut into the policy's chunks.

    A prompt of the task `offline` names its episode; prompt i of any other task is given episode i, modulo their
    number. At the end of an episode a chunk is filled up with the last action, and the choices of the filled control
    steps are masked. Episodes that failed are left out.

    Args:
        path: of the dataset: a LeRobotDataset v3.0 or Minari folder, or a robomimic file.
        stride: control steps between two decisions that are trained on; None for the policy's chunk, as the episode
            would have been played. 1 learns from every control step.
        include_failures: use episodes that are flagged as failures too.
        cache_episodes: keep the encoded episodes in memory, for small sets that are used many times.
        ignore_contract: accept episodes of another simulator than the task's.
    """

    samples = False

    def __init__(
        self,
        path: str | None = None,
        stride: int | None = None,
        include_failures: bool = False,
        cache_episodes: bool = False,
        ignore_contract: bool = False,
    ):
        if path is None:
            raise ValueError("rollout=offline needs a dataset: rollout.path=FOLDER, or task=offline task.path=FOLDER")
        try:
            locate_dataset(path)
        except ValueError as error:
            raise ValueError(f"rollout.path={error}") from error
        if stride is not None and stride < 1:
            raise ValueError(f"rollout.stride must be at least 1, got {stride}")
        self.path, self.stride, self.include_failures, self.cache_episodes, self.ignore_contract = (
            path,
            stride,
            include_failures,
            cache_episodes,
            ignore_contract,
        )
        self._dataset: Dataset | None = None
        self._indices: list[int] = []
        self._cache: dict[int, Episode] = {}

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"row_seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        dataset = self._open(ctx.task)
        ctx.progress("rollout", 0, len(prompts))
        episodes = []
        for slot, prompt in prompts:
            episodes.append(self._episode(dataset, slot, prompt, ctx))
            ctx.progress("rollout", len(episodes), len(prompts))
        return episodes

    def check_task(self, task: Task) -> None:
        self._open(task)

    def _open(self, task: Task) -> Dataset:
        """The dataset, checked against the task at the first call."""
        if self._dataset is None:
            dataset = open_dataset(self.path)
            stated, ours = dataset.contract, task.contract()
            if stated and ours and not self.ignore_contract and (lines := differences(stated, ours, "in the dataset")):
                raise ValueError(
                    f"rollout.path={self.path} was recorded in another simulator than the task's: "
                    + "; ".join(lines)
                    + ". Set the sim's options to those of the recording (sim.chunk=5 where its chunk is 5), record "
                    "again with those of this run (mmrl data record sim=NAME sim.chunk=10), or set "
                    "rollout.ignore_contract=true"
                )
            dataset.check()
            flagged = [dataset.success(n) for n in range(len(dataset))]
            self._indices = [n for n, success in enumerate(flagged) if self.include_failures or success is not False]
            if not self._indices:
                raise ValueError(
                    f"rollout.path={self.path}: all {len(dataset)} episodes failed; rollout.include_failures=true"
                )
            self._dataset = dataset
        return self._dataset

    def _episode(self, dataset: Dataset, slot: int, prompt: Prompt, ctx: Context) -> Episode:
        number = prompt.info.get("episode_index", self._indices[prompt.index % len(self._indices)])
        cached = self._cache.get(number)
        if cached is None:
            cached = _turns(dataset[number], self.stride, prompt, ctx)
            if self.cache_episodes:
                self._cache[number] = cached
        return Episode(
            prompt,
            group=slot,
            sample_index=0,
            turns=add_row_seeds(cached.turns, slot, ctx),
            ended=cached.ended,
            source="demo",
            info=dict(cached.info),
        )

    def close(self) -> None:
        """Give the files back."""
        if self._dataset is not None:
            self._dataset.close()


def _turns(episode: OfflineEpisode, stride: int | None, prompt: Prompt, ctx: Context) -> Episode:
    chunk = ctx.policy.chunk
    decisions = list(episode.decisions(chunk, stride))
    scores = {} if episode.success is None else {"success": float(episode.success)}
    return Episode(
        prompt,
        group=0,
        sample_index=0,
        turns=[Turn(_completion(decision, chunk, ctx), decision.reward) for decision in decisions],
        ended=episode.ended,
        info={"scores": scores, "seed": episode.seed, "source_episode": episode.where},
    )


def _completion(decision: Decision, chunk: int | None, ctx: Context) -> Completion:
    completion = demonstration(decision.raw, decision.output, ctx)
    if chunk is not None:
        mask_unplayed(completion, decision.executed)
    return completion
