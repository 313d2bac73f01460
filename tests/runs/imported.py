"""What a run imports, imported once for all processes that tests fork."""

# ruff: noqa: F401
import transformers.models.auto.modeling_auto

import mmrl.commands.cli
import mmrl.commands.fit
import mmrl.data.rollout_data
import mmrl.learners.learner
import mmrl.policies.text.vision
import mmrl.policies.vla.token
import sims.tabletop.sim
import tests.runs.words
import tests.tiny_recipes
