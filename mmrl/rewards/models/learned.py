"""Reward model: a sequence classifier trained on preferences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from mmrl.core.messages import join_contents
from mmrl.core.types import Episode
from mmrl.files.pretrained import load_pretrained, load_whole
from mmrl.rewards.base import Reward
from mmrl.rewards.models.row_scorer import RowScorer


class ClassifierReward(Reward):
    """Reward model: the logit of a sequence classifier of transformers with one label, for prompt and answer.

    It is the untouched model in evaluation mode: rows are padded on the right where that changes no score
    (`RowScorer`), and nothing is shared or replaced.

    Args:
        path: hub id or folder of the classifier and its tokenizer, read at the first call.
        device: where it runs; None takes a GPU where there is one.
        batch_size: answers per forward pass.
        head: name or number of the label that is the score, of a classifier with several.
    """

    foreign = True

    def __init__(self, path: str, device: str | None = None, batch_size: int = 64, head: str | int | None = None):
        self.path, self.batch_size, self.head = path, batch_size, head
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return self.score([list_messages(episode) for episode in group], [list(e.prompt.tools) for e in group])

    def score(self, conversations: Sequence[Any], tools: Sequence[Any]) -> list[float]:
        """Score conversations that end with an answer.

        Args:
            conversations: lists of chat messages.
            tools: of each conversation, the schemas that its template shows.
        """
        column = self._find_head()
        return [heads[column] for heads in self.score_heads(conversations, tools)]

    def score_heads(self, conversations: Sequence[Any], tools: Sequence[Any]) -> list[list[float]]:
        """Score conversations by all labels of the classifier; arguments as of `score`."""
        scorer, tokenizer = self._parts
        texts = [_format(messages, each, tokenizer) for messages, each in zip(conversations, tools, strict=True)]
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return [logits.tolist() for logits in scorer(ids)]

    def load(self) -> None:
        """Read the model and its tokenizer now, and refuse a model without the head."""
        self._find_head()

    def _find_head(self) -> int:
        """Number of the label that is the score."""
        config = self._parts[0].model.config
        if self.head is None:
            if config.num_labels != 1:
                raise ValueError(
                    f"{self.path} has {config.num_labels} labels; a reward needs a classifier with one, or head= one "
                    f"of {list(config.id2label.values())[:8]}; reward=ensemble combines heads"
                )
            return 0
        names = {str(name): int(number) for number, name in config.id2label.items()}
        number = names.get(str(self.head), self.head)
        if not isinstance(number, int) or not 0 <= number < config.num_labels:
            raise ValueError(f"{self.path} has no head {self.head!r}; it has {list(names)}")
        return number

    @cached_property
    def _parts(self) -> tuple[RowScorer, Any]:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        model = load_whole(AutoModelForSequenceClassification, self.path).to(self.device).eval()
        tokenizer = load_pretrained(AutoTokenizer, self.path)
        model.config.pad_token_id = tokenizer.pad_token_id
        return RowScorer(model, tokenizer.pad_token_id or 0, self.batch_size, self.path), tokenizer


def list_messages(episode: Episode) -> list[Any]:
    """The messages of a prompt and the answer to it.

    Raises:
        ValueError: the answer is no text.
    """
    if not isinstance(episode.output, str):
        raise ValueError(f"reward classifier reads texts, {episode.prompt.key!r} was answered {episode.output!r}")
    return [*episode.prompt.messages, {"role": "assistant", "content": episode.output}]


def _format(messages: Sequence[Any], tools: Sequence[Any], tokenizer: Any) -> str:
    if tokenizer.chat_template is None:
        text = join_contents(messages)
    else:
        text = tokenizer.apply_chat_template(messages, tools=list(tools) or None, tokenize=False)
    return text + tokenizer.eos_token
