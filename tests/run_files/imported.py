"""What a run imports, imported once for all processes that tests fork."""

import transformers.models.auto.modeling_auto  # noqa: F401

import mmrl.cli
import mmrl.commands.fit
import mmrl.learners.learner
import mmrl.learners.rollout_data
import mmrl.policies.text
import tests.run_files.words
import tests.runs  # noqa: F401
