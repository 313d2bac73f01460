"""One run of mmrl as `mmrl fit` builds it: `python -m benchmark.ours SETTINGS RESULT`."""

from __future__ import annotations

import sys
import tempfile

from benchmark.settings import Settings


def words(settings: Settings, run_dir: str, result: str | None) -> list[str]:
    """Command-line words of the same run; without a result file there is no clock."""
    return [
        "recipe=grpo",
        f"policy={'vlm' if settings.images else 'text'}",
        f"policy.path={settings.folder}",
        f"engine={settings.engine}",
        "task=arithmetic",
        "data.task._target_=benchmark.task.Synthetic",
        f"task.folder={settings.folder}",
        "data.evaluation=null",
        "scheduler=constant",
        f"optimizer.lr={settings.lr}",
        # fused as TRL's default; Lightning refuses to clip the gradients of a fused optimizer in mixed precision
        f"optimizer.fused={'false' if settings.dtype == 'bfloat16' else 'true'}",
        *([f"policy.lora={{r: {settings.lora}, lora_alpha: {settings.lora}}}"] if settings.lora else []),
        f"data.num_prompts={settings.prompts}",
        f"data.group_size={settings.group}",
        "data.num_minibatches=1",
        "data.update_epochs=1",
        "data.transforms.drop_zero_variance=null",
        "data.reward.weights={exact: null, share: 1.0}",
        f"data.sampling.max_tokens={settings.new_tokens}",
        f"trainer.max_epochs={settings.steps + 1}",
        f"trainer.accelerator={'gpu' if settings.device == 'cuda' else settings.device}",
        f"trainer.precision={'bf16-mixed' if settings.dtype == 'bfloat16' else '32-true'}",
        f"trainer.accumulate_grad_batches={settings.accumulate}",
        "trainer.logger=false",
        "trainer.enable_progress_bar=false",
        "trainer.enable_checkpointing=false",
        "trainer.callbacks.warm_start=null",
        *(f"trainer.callbacks.{name}=null" for name in ("progress", "checkpoint", "last", "export", "curve")),
        *([f"trainer.callbacks.clock={{_target_: benchmark.clock.Clock, file: '{result}'}}"] if result else []),
        f"seed={settings.seed}",
        f"run_dir={run_dir}",
        *settings.words,
    ]


def main(settings: Settings, result: str) -> None:
    from mmrl.commands.fit import fit

    with tempfile.TemporaryDirectory() as run_dir:
        fit(words(settings, run_dir, result))


if __name__ == "__main__":
    main(Settings.read(sys.argv[1]), sys.argv[2])
