"""Tables of one checkpoint's metrics for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from mmrl.evaluation.report.checkpoint_metrics import Metrics, TaskMetrics
from mmrl.evaluation.statistics.power import minimum_detectable_difference

CAPTION = (
    "[Wilson 95 % interval unless configured otherwise]; errors are in no rate; mdd: smallest difference to another "
)
CAPTION += "policy that as many episodes each would show (80 % power, independent)"


def format_metrics(metrics: Metrics, title: str, tasks: TaskMetrics | None = None, num_samples: int = 1) -> Table:
    """Format metrics as a table, one line per metric, with its interval if it has one; tasks before the total.

    Args:
        metrics: of one checkpoint.
        title: above the table.
        tasks: the rates of each task, where there are several.
        num_samples: per problem; they are not independent, so the detectable difference counts problems.
    """
    table = Table(title=title, title_justify="left", caption=CAPTION, caption_justify="left")
    headers = ["decode", *(["task"] if tasks else []), "measure", "value", "episodes", "errors", "mdd"]
    words = len(headers) - 4
    for position, header in enumerate(headers):
        table.add_column(header, justify="left" if position < words else "right", no_wrap=True)
    for decode, evaluators in metrics.items():
        for task, parts in (tasks or {}).get(decode, {}).items():
            for name, values in parts.items():
                for line in format_rows(name, values, num_samples):
                    table.add_row(decode, task, *line)
        for name, values in evaluators.items():
            for line in format_rows(name, values, num_samples):
                table.add_row(decode, *(["all"] if tasks else []), *line, style="bold" if tasks else "")
    return table


def format_rows(name: str, values: Mapping[str, float], num_samples: int = 1) -> list[tuple[str, str, str, str, str]]:
    """Format the metrics of one evaluator as rows (measure, value, episodes, errors, mdd).

    x with x_lower and x_upper, or mean with lower and upper, is a rate and has an interval. The cell of a number that
    the evaluator does not give is empty.
    """
    count = values.get("n", values.get("prompts"))
    # samples of one problem are not independent: the detectable difference counts problems
    problems = values["n"] / num_samples if "n" in values else count
    errors = f"{values['errors']:g}" if "errors" in values else ""
    episodes = "" if count is None else f"{count:g}"
    rows = []
    for key, value in values.items():
        low, high = ("lower", "upper") if key == "mean" else (f"{key}_lower", f"{key}_upper")
        if low in values:
            # a rate in percent with its confidence interval; NaN where no episode finished
            interval = f"{100 * value:.1f} % [{100 * values[low]:.1f}, {100 * values[high]:.1f}]"
            label = name if key == "mean" else key
            rows.append(
                (
                    label,
                    interval if value == value else "none finished",
                    episodes,
                    errors,
                    format_detectable_difference(value, problems),
                )
            )
        elif key not in ("n", "prompts", "errors") and not key.endswith(("lower", "upper")):
            rows.append((f"{name}/{key}", f"{value:.4g}", episodes, errors, ""))
    return rows


def format_detectable_difference(rate: float, problems: float | None) -> str:
    """Format the minimum detectable difference in percentage points."""
    if not problems or rate != rate:
        return ""
    difference = minimum_detectable_difference(max(int(problems), 1), rate)
    return "none" if difference is None else f"{100 * difference:.1f}"
