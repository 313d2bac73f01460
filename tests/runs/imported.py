"""What a run imports and computes once, for all processes that tests fork."""

# ruff: noqa: F401
import gc
import os

import peft
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import mmrl.commands.fit
import mmrl.policies.text.vision
import mmrl.policies.vla.small.token
import sims.tabletop.sim
import tests.runs.words
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.composed_words import share_options
from tests.parsed_words import share_parts
from tests.tiny_recipes import QUIET, TEXT

share_options()
share_parts()
get_checkpoint_conversion_mapping("qwen2")  # the table of all models
for words in ((*TEXT, *QUIET), ("recipe=demo_vla", *QUIET)):
    CLI(to_lightning(compose([*words, "run_dir=same"])), build=False)  # imports the parts that most runs have
for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
    os.environ.pop(name, None)  # the seed of these two
gc.collect()
gc.freeze()  # a collection in a forked process would copy the memory of all modules
