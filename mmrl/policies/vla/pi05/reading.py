"""Inputs of pi0.5: the prompt with the state, pixels and quantile units."""

from __future__ import annotations

from mmrl.policies.vla.paligemma.reading import PaliGemmaReading


class Pi05Reading(PaliGemmaReading):
    """Inputs of a pi0.5 checkpoint in lerobot's format."""

    kind = "pi05"
    mode = "QUANTILES"
    prompt_end = "Action: "
    prompt_step = "pi05_prepare_state_tokenizer_processor_step"
