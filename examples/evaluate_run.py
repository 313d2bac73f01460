"""Evaluate the checkpoints of a run on held-out problems.

    python examples/evaluate_run.py RUN_FOLDER [COUNT]

Seconds to minutes, for COUNT (64) problems; prints every rate of the first and the last checkpoint with its interval.
`mmrl evaluate RUN_FOLDER compare=start` tests the difference on the same problems (McNemar).
"""

import sys

import mmrl

if __name__ == "__main__":
    run, count = mmrl.Run(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 64
    for checkpoint in ("start", "last"):
        for decode, evaluators in run.evaluate(checkpoint=checkpoint, count=count).items():
            for name, metrics in evaluators.items():
                if "lower" in metrics:
                    low, high = metrics["lower"], metrics["upper"]
                    print(f"{checkpoint} {decode} {name}: {metrics['mean']:.3f} [{low:.3f}, {high:.3f}]")
