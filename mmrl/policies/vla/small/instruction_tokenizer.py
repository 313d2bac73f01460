"""Tokenizer for instructions: known words are one token, unknown words are spelt by characters."""

from __future__ import annotations

import string
from collections.abc import Sequence

from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN = "<pad>", "<unk>"

WORDS: tuple[str, ...] = (
    *("reach", "push", "pick", "place", "lift", "touch", "grasp", "open", "close", "move", "put", "point", "find"),
    *("the", "a", "to", "at", "on", "in", "into", "of", "and", "up", "down", "left", "right", "next", "from", "with"),
    *("red", "green", "blue", "yellow", "purple", "orange", "white", "black", "cyan", "magenta", "grey", "brown"),
    *("cube", "ball", "block", "box", "bowl", "drawer", "target", "goal", "object", "table", "gripper", "robot"),
    *("disc", "plate", "button", "handle", "hand", "top", "place", "onto", "above", "under", "out", "then", "for"),
    *("press", "stack", "slide", "pull", "go", "get", "gets", "set", "hit", "tap", "bring", "is", "goes", "one"),
)


def instruction_tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """Build a WordPiece tokenizer of `words` and characters, lower case; non-ASCII characters are unknown.

    New wordings need no new vocabulary: a word that is not listed is spelt character by character.
    """
    alphabet = string.ascii_lowercase + string.digits + string.punctuation
    pieces = [PAD, UNKNOWN, *alphabet, *(f"##{letter}" for letter in alphabet), *(word.lower() for word in words)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    # longer words would become one unknown token instead of being spelt
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=64))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN)
