"""Prompts that an engine cannot sample are refused before a model is built and an engine is started."""

import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError

WORDS = ("recipe=grpo_digits_vlm", "policy=tiny_vlm", "trainer.callbacks.warm_start.stages=null", "task=clips")


@pytest.mark.parametrize("engine", ["vllm", "vllm_server"])
def test_vllm_refuses_videos_before_a_model_is_built(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.nn.Linear, "__init__", lambda *_, **__: pytest.fail("a model was built"))
    words = (*WORDS, f"engine={engine}", "task.video=true", f"run_dir='{tmp_path}/run'")
    with pytest.raises(ConfigError, match=r"^engine=vllm: a prompt has a video.*engine=local.*task\.show_videos"):
        CLI(to_lightning(compose(words)))
