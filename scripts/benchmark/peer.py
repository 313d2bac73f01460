"""The same steps by TRL's GRPOTrainer: `python -m benchmark.peer SETTINGS RESULT`. Needs trl and numpy, not mmrl."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from benchmark import problems, process
from benchmark.settings import Settings

try:
    import torch
    from datasets import Dataset
    from PIL import Image
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
except ImportError as error:
    raise SystemExit(
        f"--peer trl: {sys.executable} has no TRL ({error}); name one that has: --peer-python PATH"
    ) from None


class Clock(TrainerCallback):
    """Records the end of each optimiser step, generation included."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.steps = process.Steps()
        self.steps.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.steps.end()


class Reward:
    """The reward, which also counts the completions."""

    __name__ = "share"

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.lengths: list[float] = []

    def __call__(self, completions: list, completion_ids: list[list[int]], **_: Any) -> list[float]:
        self.tokens.append(sum(map(len, completion_ids)))
        self.lengths.append(self.tokens[-1] / len(completion_ids))
        return [problems.share(completion[0]["content"]) for completion in completions]


def dataset(settings: Settings) -> Dataset:
    """Prompts in order, with images from memory, so that no file is decoded in a step."""
    given = problems.read(settings.folder)
    size, seed = given["image_size"], given["seed"]
    prompts = [[{"role": "user", "content": text}] for text in given["texts"]]
    images = [Image.fromarray(problems.noise_image(i, size, seed)) for i in range(len(prompts))] if size else None

    def row(batch: dict[str, list]) -> dict[str, list]:
        out: dict[str, list] = {"prompt": [prompts[i] for i in batch["index"]]}
        return out if images is None else {**out, "image": [images[i] for i in batch["index"]]}

    return Dataset.from_dict({"index": list(range(len(prompts)))}).with_transform(row)


def adapters(settings: Settings) -> Any:
    """Low-rank adapters on all linear layers, as on the other side; None without."""
    if settings.lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(r=settings.lora, lora_alpha=settings.lora, target_modules="all-linear", task_type="CAUSAL_LM")


def main(settings: Settings, result: str) -> None:
    reward, clock = Reward(), Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=settings.folder,
            reward_funcs=reward,
            train_dataset=dataset(settings),
            callbacks=[clock],
            peft_config=adapters(settings),
            args=GRPOConfig(
                output_dir=folder,
                model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
                use_cpu=settings.device == "cpu",
                bf16=settings.dtype == "bfloat16",
                per_device_train_batch_size=-(-settings.rows // settings.accumulate),
                gradient_accumulation_steps=settings.accumulate,
                num_generations=settings.group,
                max_completion_length=settings.new_tokens,
                max_steps=settings.steps + 1,
                shuffle_dataset=False,
                temperature=1.0,
                beta=0.0,
                epsilon=0.2,
                num_iterations=1,
                gradient_checkpointing=False,
                disable_dropout=True,
                learning_rate=settings.lr,
                lr_scheduler_type="constant",
                optim="adamw_torch_fused",
                adam_beta1=0.9,
                adam_beta2=0.99,
                weight_decay=0.0,
                max_grad_norm=1.0,
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
                seed=settings.seed,
            ),
        )
        trainer.train()
    prompt = (trainer.state.num_input_tokens_seen - sum(reward.tokens)) / settings.rows / (settings.steps + 1)
    more: dict[str, Any] = {}
    if settings.device == "cuda":
        more["peak_cuda_gib"] = torch.cuda.max_memory_allocated() / 2**30
    summary = process.summary(clock.steps, reward.tokens, reward.lengths, prompt_tokens=round(prompt), **more)
    process.report(result, summary | {"versions": process.versions("trl", "torch", "transformers")})


if __name__ == "__main__":
    main(Settings.read(sys.argv[1]), sys.argv[2])
