"""FAST: action chunks as short sequences of tokens, by a cosine transform and byte-pair encoding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from huggingface_hub import snapshot_download
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from mmrl.files.strict_json import read_json_object

TOKENIZER, CONFIG, CODE = "tokenizer.json", "processor_config.json", "processing_action_tokenizer.py"
_REMEDY = "give a folder or hub id of a FAST tokenizer, such as physical-intelligence/fast"
_BROKEN = 0xFFFD  # what decoding writes for bytes that are no character


class Decoded(NamedTuple):
    """A decoded sequence; `failure` is None for the tokens of a chunk."""

    chunk: np.ndarray  # float32 [H, A]; of a malformed sequence what its coefficients say, missing ones are 0
    failure: str | None  # "too_few" or "too_many" coefficients, or "broken" characters


class FastTokenizer:
    """FAST tokenizer of action chunks.

    Encoding: the orthonormal DCT-II of each action dimension over the chunk, times `scale`, rounded; coefficients are
    put in order from low to high frequency, dimension after dimension within a frequency, written as one character each
    (number minus `lowest`), and the characters are merged by byte-pair encoding. Decoding is the inverse.
    Source: Pertsch et al., "FAST", 2025, section V, arXiv:2501.09747, and the files of physical-intelligence/fast.
    Differs: the original decodes a malformed sequence to zeros; here it is named and decoded as far as it goes, as
    openpi and LeRobot do (coefficients are cut or filled up with zeros).

    Args:
        bpe: byte-level BPE of the characters.
        scale: factor of the coefficients before they are rounded.
        lowest: least coefficient; lower ones are raised to it.
        code: file with the original's class, copied by `save` for programs that load it; None without one.
    """

    def __init__(self, bpe: Tokenizer, scale: float = 10, lowest: int = 0, code: Path | None = None):
        self.bpe, self.scale, self.lowest, self.code = bpe, scale, lowest, code

    @property
    def size(self) -> int:
        """Number of ids."""
        return self.bpe.get_vocab_size()

    def encode(self, chunk: np.ndarray) -> list[int]:
        """Encode a chunk [H, A], in units of about [-1, 1].

        Raises:
            ValueError: the tokenizer was fitted to data without such coefficients.
        """
        text = _write(self._coefficients(chunk), self.lowest)
        ids = self.bpe.encode(text).ids
        if self.bpe.decode(ids, skip_special_tokens=False) != text:
            numbers = self._coefficients(chunk)
            raise ValueError(
                f"an action chunk has DCT coefficients from {numbers.min()} to {numbers.max()} (times {self.scale}), "
                "of which the FAST tokenizer cannot write all: scale actions to [-1, 1] (policy.processor), or fit a "
                "tokenizer on this data (FastTokenizer.fit)"
            )
        return ids

    def decode(self, ids: Sequence[int], horizon: int, dims: int) -> Decoded:
        """Decode ids to a chunk [horizon, dims]."""
        numbers = np.array([ord(c) for c in self.bpe.decode(list(ids), skip_special_tokens=False)], dtype=np.int64)
        count, broken = horizon * dims, numbers == _BROKEN
        failure = "too_few" if len(numbers) < count else "too_many" if len(numbers) > count else None
        failure = "broken" if broken.any() else failure
        values = np.where(broken, 0, numbers + self.lowest)[:count]
        coefficients = np.pad(values, (0, count - len(values))).reshape(horizon, dims)
        return Decoded((dct_matrix(horizon).T @ (coefficients / self.scale)).astype(np.float32), failure)

    def _coefficients(self, chunk: np.ndarray) -> np.ndarray:
        return quantise(np.asarray(chunk), self.scale)

    @classmethod
    def fit(cls, chunks: Sequence[np.ndarray], vocabulary: int = 1024, scale: float = 10) -> FastTokenizer:
        """Fit to chunks, each [H, A] with H and A of its own.

        Args:
            chunks: of a data set, in the policy's units.
            vocabulary: number of ids; more than there are values of coefficients.
            scale: larger ones lose less and need more tokens.
        """
        if not chunks:
            raise ValueError("a FAST tokenizer is fitted to at least one action chunk, got none")
        coefficients = [quantise(np.asarray(chunk), scale) for chunk in chunks]
        lowest, highest = int(min(c.min() for c in coefficients)), int(max(c.max() for c in coefficients))
        if highest - lowest > vocabulary:
            raise ValueError(
                f"{highest - lowest + 1} values of DCT coefficients do not fit into a vocabulary of {vocabulary}: "
                "lower the scale, scale the actions to [-1, 1], or enlarge the vocabulary"
            )
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bpe.decoder = decoders.ByteLevel()
        bpe.post_processor = processors.ByteLevel(trim_offsets=False)
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            min_frequency=2,
            show_progress=False,
            special_tokens=[],
            initial_alphabet=[chr(number) for number in range(highest - lowest + 1)],
            max_token_length=10_000,
        )
        bpe.train_from_iterator((_write(c, lowest) for c in coefficients), trainer=trainer)
        return cls(bpe, scale, lowest)

    @classmethod
    def load(cls, path: str) -> FastTokenizer:
        """Load the published files from a folder or hub id; code in them is not run."""
        folder = Path(path)
        if not folder.is_dir():
            folder = Path(snapshot_download(path, allow_patterns=[TOKENIZER, CONFIG, CODE]))
        for name in (TOKENIZER, CONFIG):
            if not (folder / name).is_file():
                raise ValueError(f"{path} has no {name}; {_REMEDY}")
        config = read_json_object(folder / CONFIG, _REMEDY)
        code = folder / CODE
        return cls(
            Tokenizer.from_file(str(folder / TOKENIZER)),
            float(config.get("scale", 10)),
            int(config.get("min_token", 0)),
            code if code.is_file() else None,
        )

    def save(self, folder: Path) -> None:
        """Save the files that `load` and the original's class read."""
        folder.mkdir(parents=True, exist_ok=True)
        self.bpe.save(str(folder / TOKENIZER))
        sizes = {"vocab_size": self.size, "action_dim": None, "time_horizon": None}
        config = {
            "processor_class": "UniversalActionProcessor",
            "auto_map": {"AutoProcessor": "processing_action_tokenizer.UniversalActionProcessor"},
            "scale": self.scale,
            "min_token": self.lowest,
            **sizes,
        }
        tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        for name, content in ((CONFIG, config), ("tokenizer_config.json", tokenizer)):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")
        if self.code is not None and self.code.parent != folder:
            shutil.copy(self.code, folder / CODE)


@lru_cache(maxsize=16)
def dct_matrix(steps: int) -> np.ndarray:
    """Compute the orthonormal DCT-II matrix [steps, steps]: row k is the cosine of frequency k."""
    frequency, place = np.arange(steps)[:, None], np.arange(steps)[None]
    matrix = np.sqrt(2 / steps) * np.cos(np.pi * frequency * (2 * place + 1) / (2 * steps))
    matrix[0] /= np.sqrt(2)
    return matrix


def quantise(chunk: np.ndarray, scale: float) -> np.ndarray:
    """Compute rounded DCT coefficients, int64 [H * A], frequency after frequency."""
    coefficients = dct_matrix(len(chunk)) @ chunk.astype(np.float64)
    return np.around(coefficients * scale).astype(np.int64).flatten()


def _write(coefficients: np.ndarray, lowest: int) -> str:
    return "".join(map(chr, np.maximum(coefficients - lowest, 0)))
