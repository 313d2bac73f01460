"""Grade answers by a stated principle: what a generative judge of a small language must learn."""

from tasks.judgements.task import Judgements

__all__ = ["Judgements"]
