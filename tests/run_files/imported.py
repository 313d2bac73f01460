"""What a run imports, imported once for all processes that tests fork."""

# ruff: noqa: F401
import transformers.models.auto.modeling_auto

import mmrl.cli
import mmrl.commands.fit
import mmrl.learners.learner
import mmrl.learners.rollout_data
import mmrl.policies.action_token
import mmrl.policies.vision
import sims.tabletop.sim
import tests.run_files.words
import tests.runs
