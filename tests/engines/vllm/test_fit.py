"""A run with vLLM in the learner's process."""

import pytest

from tests.tiny_recipes import fit

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("image", [False, True], ids=["text", "images"])
def test_a_run_of_two_iterations(tmp_path, image):
    words = ("policy.config.num_attention_heads=1", "policy.config.num_key_value_heads=1")  # a head has 32 numbers
    if image:
        words = ("policy=tiny_vlm", "data.task.image=true")
    left = fit(tmp_path, "engine=vllm", "data.engine.backend.cache_gib=0.25", "trainer.max_epochs=2", *words)
    played = [m for m in left["metrics"] if "engine/tokens" in m]
    assert len(played) == 2
    for metrics in played:
        assert metrics["rollout/errors"] == 0 and metrics["engine/tokens"] > 0
        assert metrics["engine/canary_difference"] < 1e-4
        assert abs(metrics["train/policy/ratio"] - 1) < 0.5
