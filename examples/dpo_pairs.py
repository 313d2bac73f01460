"""DPO on preference pairs: learn to prefer the right answer of a sum to a wrong one.

    python examples/dpo_pairs.py [key=value ...]

The pairs are rows of Hugging Face's format, {"prompt", "chosen", "rejected"}; a random language model of 1 M parameters
first imitates the chosen answers (the recipe's warm start). A minute on two CPU cores. train/preference/accuracy,
the share of pairs whose chosen answer the policy prefers more than its reference does, ends at about 0.8.
"""

import json
import sys
from pathlib import Path

import mmrl

PAIRS = Path("runs/pairs.jsonl")


def write_pairs(path: Path, count: int = 300) -> None:
    """Write one JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"prompt": f"{a}+{b}=", "chosen": str(a + b), "rejected": str(a + b + 1 + a % 3)}
        for a, b in ((i % 20, i // 20) for i in range(count))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    write_pairs(PAIRS)
    start = ["recipe=sft", "data.evaluation=null", "data.reward.weights.exact=null", "data.num_prompts=256"]
    run = mmrl.fit(
        *sys.argv[1:],
        recipe="dpo",
        task={"path": str(PAIRS)},
        trainer={
            "max_epochs": 10,
            "callbacks": {"warm_start": {"stages": {"sft": [*start, "trainer.max_epochs=20"]}}},
        },
    )
    print({name: value for name, value in run.last_metrics.items() if name.startswith("train/preference")})
