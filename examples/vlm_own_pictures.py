"""A vision-language model on your own images and questions: is the left half of a picture brighter, or the right?

    python examples/vlm_own_pictures.py [key=value ...]

The model, LLaVA's architecture with 1 M random parameters, first imitates the answers until it is right now and then
(the recipe's warm start), then GRPO rewards right answers. Two minutes on two CPU cores; nearly all held-out answers
are right at the end. A pretrained model needs no warm start: policy="vlm", policy.path=Qwen/Qwen2.5-VL-3B-Instruct.
"""

import sys

import numpy as np

import mmrl

QUESTION = "L or R?"


def make_problem(index: int) -> dict:
    """A problem has a question, an answer and an image: an array, a PIL image or the path of a file."""
    random = np.random.default_rng(index)
    image = random.integers(0, 128, (32, 32, 3), dtype=np.uint8)
    side = "LR"[index % 2]
    image[:, slice(0, 16) if side == "L" else slice(16, 32)] += 100
    return {"question": QUESTION, "answer": side, "image": image}


if __name__ == "__main__":
    run = mmrl.fit(
        *sys.argv[1:],
        recipe="grpo_digits_vlm",
        task=[make_problem(index) for index in range(400)],
        policy="tiny_vlm",
        trainer={"max_epochs": 10, "check_val_every_n_epoch": 5},
    )
    print(f"right on held-out problems: {run.last_metrics['val/greedy/exact/mean']:.0%}")
    problem = make_problem(1001)
    print(f"answer {run.load_policy().generate(QUESTION, images=[problem['image']])!r}, right is {problem['answer']!r}")
