"""Counts of a real-time episode: late commands, control steps without an action, delays of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class TimingReport:
    """What happened in the control steps of some episodes.

    A command is late if it is given after the end of its control step: later than one period after the step began.

    Args:
        period_s: of a control step, seconds.
        steps: control steps that were played.
        late: late commands.
        held: control steps without an action of the policy or of a human, in which the robot held.
        interventions: control steps that a human played.
        takeovers: times that a human took over.
        chunks: that were joined.
        stale_chunks: that were dropped as a whole: too late, or computed before a human had control.
        past_steps: actions of joined chunks that were dropped, since their control steps were past.
        inference_s: seconds of each answer of the policy.
        command_s: seconds of each control step from its beginning to its command.
    """

    period_s: float
    steps: int = 0
    late: int = 0
    held: int = 0
    interventions: int = 0
    takeovers: int = 0
    chunks: int = 0
    stale_chunks: int = 0
    past_steps: int = 0
    inference_s: list[float] = field(default_factory=list)
    command_s: list[float] = field(default_factory=list)

    def note_command(self, seconds: float) -> bool:
        """Count the command of a control step, so many seconds after its beginning; returns whether it is late."""
        late = seconds > self.period_s
        self.steps, self.late = self.steps + 1, self.late + late
        self.command_s.append(seconds)
        return late

    def format(self) -> list[str]:
        """Lines for people."""
        lines = [
            f"{self.steps} control steps of {1000 * self.period_s:g} ms: {self.late} late commands, {self.held} held, "
            f"{self.interventions} by a human in {self.takeovers} takeovers",
            f"{self.chunks} chunks joined, {self.past_steps} of their actions were past, {self.stale_chunks} chunks "
            "stale",
        ]
        for name, values in (("inference", self.inference_s), ("command after", self.command_s)):
            if values:
                lines.append(f"{name}: {_format_quantiles(values)}")
        return lines


def join_reports(reports: Sequence[TimingReport]) -> TimingReport:
    """The counts of several episodes of one period together."""
    total = TimingReport(reports[0].period_s)
    for report in reports:
        for name, value in vars(report).items():
            if name != "period_s":
                setattr(total, name, getattr(total, name) + value)
    return total


def _format_quantiles(seconds: Sequence[float]) -> str:
    median, high, most = 1000 * np.quantile(seconds, (0.5, 0.99, 1))
    return f"median {median:.1f} ms, 99 % {high:.1f} ms, longest {most:.1f} ms"
