"""What scripts/bench_grpo.py and scripts/bench_engine.py share: one GRPO step, measured on both sides alike."""
