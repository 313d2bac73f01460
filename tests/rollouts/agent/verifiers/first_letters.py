"""A taskset of verifiers 0.4: the reward is the length of the reply and the number of the task."""

import verifiers.v1 as vf


class Data(vf.TaskData):
    number: int = 0


class Task(vf.Task[Data]):
    @vf.reward(weight=1.0)
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply)) + self.data.number


class Letters(vf.Taskset[Task, vf.TasksetConfig]):
    def load(self) -> list[Task]:
        return [Task(Data(prompt=f"letter {i}", number=i), self.config.task) for i in range(3)]


__all__ = ["Letters"]
