"""FAST tokenizer: numbers by hand, the original's computation, and sequences that are no chunk."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.fft import dct, idct
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from tokenizers.trainers import BpeTrainer

from mmrl.policies.vla.pi0_fast.fast_tokenizer import FastTokenizer, dct_matrix, quantise
from tests.policies.vla.checkpoints.pi_checkpoints import smooth_chunks


@pytest.fixture(scope="module")
def tokenizer() -> FastTokenizer:
    return FastTokenizer.fit(smooth_chunks(200, 8, 3), vocabulary=300, scale=10)


def test_coefficients_by_hand():
    """Of (1, 3): mean part 4 / sqrt(2) = 2.83, difference (1 - 3) / sqrt(2) = -1.41; times 10: 28 and -14."""
    assert quantise(np.array([[1.0], [3.0]]), 10).tolist() == [28, -14]
    # two dimensions: the low frequency of both comes first
    assert quantise(np.array([[1.0, 0.0], [3.0, 0.0]]), 10).tolist() == [28, 0, -14, 0]


@pytest.mark.parametrize("steps", [1, 2, 7, 50])
def test_transform_is_scipys(steps):
    chunk = np.random.default_rng(steps).normal(size=(steps, 4))
    assert_allclose(dct_matrix(steps) @ chunk, dct(chunk, axis=0, norm="ortho"), atol=1e-12)
    assert_allclose(dct_matrix(steps).T @ dct_matrix(steps), np.eye(steps), atol=1e-12)


def original_fit(chunks, scale, vocabulary):
    """The published algorithm in plain words: training text, alphabet and trainer of physical-intelligence/fast."""
    numbers = [np.around(dct(chunk, axis=0, norm="ortho").flatten() * scale).astype(int) for chunk in chunks]
    low, high = min(n.min() for n in numbers), max(n.max() for n in numbers)
    bpe = ByteLevelBPETokenizer()
    alphabet = [chr(i) for i in range(high - low + 1)]
    options = {"min_frequency": 2, "special_tokens": [], "initial_alphabet": alphabet, "max_token_length": 10000}
    trainer = BpeTrainer(vocab_size=vocabulary, show_progress=False, **options)
    bpe._tokenizer.train_from_iterator(["".join(chr(i - low) for i in n) for n in numbers], trainer=trainer)
    return bpe._tokenizer, int(low)


def test_it_is_the_originals_tokenizer(tmp_path, tokenizer):
    """Fitting, tokens and decoded chunks, also of chunks that it was not fitted to."""
    chunks = smooth_chunks(200, 8, 3)
    bpe, low = original_fit(chunks, 10, 300)
    assert (tokenizer.lowest, tokenizer.size) == (low, bpe.get_vocab_size())
    assert json.loads(bpe.to_str())["model"] == json.loads(tokenizer.bpe.to_str())["model"]
    for chunk in [*chunks[:20], *smooth_chunks(20, 8, 3, seed=9)]:
        numbers = np.maximum(np.around(dct(chunk, axis=0, norm="ortho") * 10).flatten() - low, 0).astype(int)
        ids = bpe.encode("".join(map(chr, numbers))).ids
        assert tokenizer.encode(chunk) == ids
        found = (np.array([ord(c) for c in bpe.decode(ids)]) + low).reshape(8, 3)
        chunk_again, failure = tokenizer.decode(ids, 8, 3)
        assert failure is None
        assert_allclose(chunk_again, idct(found / 10, axis=0, norm="ortho"), atol=1e-6)
        # half a step of each of the 8 coefficients
        assert np.abs(chunk_again - chunk).max() < 0.5 / 10 * 8**0.5
    assert np.mean([len(tokenizer.encode(chunk)) for chunk in chunks]) < 12  # 24 numbers


def test_files_are_read_as_published(tmp_path, tokenizer):
    """The names of physical-intelligence/fast, with the original's code beside them, which is copied and not run."""
    tokenizer.save(tmp_path / "fast")
    config = json.loads((tmp_path / "fast" / "processor_config.json").read_text())
    assert (config["scale"], config["min_token"], config["vocab_size"]) == (10, tokenizer.lowest, tokenizer.size)
    (tmp_path / "fast" / "processing_action_tokenizer.py").write_text("raise SystemExit\n")
    again = FastTokenizer.load(str(tmp_path / "fast"))
    chunk = smooth_chunks(1, 8, 3, seed=3)[0]
    assert again.encode(chunk) == tokenizer.encode(chunk)
    again.save(tmp_path / "copy")
    assert (tmp_path / "copy" / "processing_action_tokenizer.py").is_file()
    (tmp_path / "copy" / "processor_config.json").unlink()
    with pytest.raises(ValueError, match=r"has no processor_config\.json"):
        FastTokenizer.load(str(tmp_path / "copy"))


def test_malformed_sequences_are_named(tokenizer):
    chunk = smooth_chunks(1, 8, 3, seed=4)[0]
    ids = tokenizer.encode(chunk)
    found = tokenizer.decode([], 8, 3)
    assert found.failure == "too_few" and not found.chunk.any()
    short = tokenizer.decode(ids[:2], 8, 3)
    assert short.failure == "too_few" and short.chunk.any()  # the low frequencies, as far as they were written
    long = tokenizer.decode(ids + ids, 8, 3)
    assert long.failure == "too_many"
    assert_allclose(long.chunk, tokenizer.decode(ids, 8, 3).chunk)


def test_broken_characters_are_named():
    """A byte that begins a character of two bytes, alone."""
    wide = FastTokenizer.fit([np.array([[a], [-a]]) for a in np.linspace(-9, 9, 80)], vocabulary=400, scale=10)
    half = next(i for i in range(wide.size) if wide.bpe.decode([i], skip_special_tokens=False) == "\ufffd")
    found = wide.decode([half, *wide.encode(np.array([[9.0], [-9.0]]))], 2, 1)
    assert found.failure == "broken" and np.isfinite(found.chunk).all() and np.abs(found.chunk).max() < 30


def test_what_cannot_be_written_is_refused(tokenizer):
    with pytest.raises(ValueError, match="scale actions"):
        tokenizer.encode(np.full((8, 3), 50.0))
    with pytest.raises(ValueError, match="at least one"):
        FastTokenizer.fit([])
    with pytest.raises(ValueError, match="do not fit into a vocabulary of 16"):
        FastTokenizer.fit(smooth_chunks(20, 8, 3), vocabulary=16)
    assert isinstance(tokenizer.bpe, Tokenizer)
