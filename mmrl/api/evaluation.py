"""Evaluate a run from Python, by the code of `mmrl evaluate`."""

from __future__ import annotations

from pathlib import Path

from mmrl.api.run import Run

Metrics = dict[str, dict[str, dict[str, float]]]
"""decode -> evaluator -> metrics, such as {"greedy": {"exact": {"mean": 0.8, "lower": 0.7, "upper": 0.9, "n": 64}}}."""


def evaluate(
    run: Run | str | Path,
    *overrides: str,
    checkpoint: str | Path | None = None,
    count: int | None = None,
    num_samples: int | None = None,
    decode: str | None = None,
    trust: bool = False,
) -> Metrics:
    """Measure a run's checkpoint on held-out problems, and return the metrics of every decode and evaluator.

    A rate has a Wilson 95 % interval (`lower`, `upper`). Everything that `mmrl evaluate` writes into the run's folder
    is written: evaluation.json, protocol.json, episodes.jsonl, report.html.

    Args:
        run: or its folder, or one of its .ckpt files.
        overrides: single values of the run's configuration, as in "sim.renderer=ray".
        checkpoint: last (default), start, or a file.
        count: held-out problems; None as configured.
        num_samples: completions or episodes per problem; more than 1 adds pass@k.
        decode: a configured one, or sample, argmax, mean; None for all that are configured.
        trust: also load pickled objects from the checkpoint; their author can run any code.

    Raises:
        ConfigError: the run, the checkpoint or an option cannot be used.
    """
    from mmrl.commands.evaluate import evaluate as command
    from mmrl.commands.evaluation.arguments import parse
    from mmrl.core.errors import ConfigError

    place = run.folder if isinstance(run, Run) else Path(run)
    options = {"checkpoint": checkpoint, "count": count, "num_samples": num_samples, "decode": decode}
    arguments = [f"{name}={value}" for name, value in options.items() if value is not None]
    arguments = [str(place), *arguments, *(["trust=true"] if trust else []), *overrides]
    request = parse(arguments)
    if request.compare is not None:
        raise ConfigError(
            f"compare={request.compare}: mmrl.evaluate returns the metrics of one checkpoint; call it once for each, "
            f"with checkpoint=NAME, or run `mmrl evaluate {place} compare=NAME` for paired differences"
        )
    result = command(arguments)
    (metrics,) = result["metrics"].values()
    return metrics
