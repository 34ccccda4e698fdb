"""A job's pieces are on the disk: memory holds some numbers for each text, and the pieces of one block."""

from __future__ import annotations

import errno
import tracemalloc

import numpy as np
import pytest
from toys import WORDS

from probekit.activations import cache_activations, verify
from probekit.activations.writing import input as input_module
from probekit.activations.writing import job as job_module
from probekit.activations.writing import prepare as prepare_module
from probekit.activations.writing.pieces import PIECE, spilled
from probekit.errors import CacheError
from probekit.models import load_encoder
from probekit.models.encoder import Tokens
from probekit.tasks.task import Example, Split, Task, TaskKind


def task(n: int, words: int) -> Task:
    rng = np.random.default_rng(0)
    texts = (
        " ".join([WORDS[k] for k in row] + [str(i)]) for i, row in enumerate(rng.integers(0, len(WORDS), (n, words)))
    )
    examples = tuple(Example(str(i), text, i % 2, group=str(i)) for i, text in enumerate(texts))
    return Task("many", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("a", "b"))


def parts(seed: int, table: bool) -> list[Tokens]:
    """Pieces in three parts, each with its own numbers for the words of an open vocabulary."""
    rng, found = np.random.default_rng(seed), []
    for s in (4, 1, 3):
        length = rng.integers(0, 9, s)
        t = int(length.sum())
        words = rng.permutation(7)[:5].astype(np.int16)
        columns = {name: rng.integers(0, 2, t).astype(PIECE[name]) for name in PIECE.names}
        columns["token_ids"] = rng.integers(0, 5, t).astype(np.int32)
        characters = np.repeat(words[:, None], 50, 1) if table else None
        found.append(Tokens(**columns, length=length, truncated=rng.random(s) < 0.5, characters=characters))
    return found


@pytest.mark.parametrize("table", [False, True])
def test_pieces_come_back(tmp_path, table):
    given = parts(1, table)
    with spilled(iter(given), tmp_path / "c.h5") as pieces:
        assert not list(tmp_path.iterdir())  # a file without a name: nothing is left after a kill
        for first, last in ((0, 8), (0, 0), (3, 6), (7, 8)):
            found = pieces.tokens(first, last)
            for name in ("length", "truncated"):
                right = np.concatenate([getattr(part, name) for part in given])[first:last]
                np.testing.assert_array_equal(getattr(found, name), right)
            stop = np.cumsum(np.concatenate([part.length for part in given]))
            rows = slice(stop[first - 1] if first else 0, stop[last - 1] if last else 0)
            for name in PIECE.names:
                if name == "token_ids" and table:  # each part's words, whatever their numbers
                    right = np.concatenate([part.characters[part.token_ids] for part in given])[rows]
                    np.testing.assert_array_equal(pieces.characters[found.token_ids], right)
                else:
                    right = np.concatenate([getattr(part, name) for part in given])[rows]
                    np.testing.assert_array_equal(getattr(found, name), right)
                    assert getattr(found, name).dtype == right.dtype
    if table:
        of_first_use = [row.tobytes() for part in given for row in part.characters]
        assert [row.tobytes() for row in pieces.characters] == list(dict.fromkeys(of_first_use))


def test_the_bytes_do_not_depend_on_how_much_is_read_at_a_time(tiny_bert, tmp_path, monkeypatch):
    encoder, made = load_encoder(tiny_bert, device="cpu"), []
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    for _ in range(2):
        cache_activations(encoder, task(50, 9), out=tmp_path / "c.h5", tokens=True, overwrite=True).close()
        made.append((tmp_path / "c.h5").read_bytes())
        (tmp_path / "c.h5").unlink()
        monkeypatch.setattr(input_module, "CHARACTERS", 300)
        monkeypatch.setattr("probekit.activations.writing.pieces.AT_A_TIME", 40)
    assert made[0] == made[1]


def test_what_a_piece_costs(tiny_bert, tmp_path, monkeypatch):
    """The peak of numpy's and Python's memory before the model runs, above the texts, of 3 and of 9 chunks."""
    encoder, peaks = load_encoder(tiny_bert, device="cpu"), []
    monkeypatch.setattr(prepare_module, "quick_certificate", lambda *_: {})
    monkeypatch.setattr(job_module, "open_partial", lambda path: 1 / 0)
    monkeypatch.setattr(input_module, "TEXTS", 250)
    monkeypatch.setattr("probekit.activations.writing.pieces.AT_A_TIME", 1 << 14)
    monkeypatch.setattr("probekit.activations.writing.plan.MOST_TOKENS", 1 << 14)
    monkeypatch.setattr("probekit.activations.writing.plan.LEAST_TOKENS", 1 << 14)
    for n in (750, 2250):
        made = task(n, 29)
        tracemalloc.start()
        with pytest.raises(ZeroDivisionError):
            cache_activations(encoder, made, out=tmp_path / f"{n}.h5", tokens=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (1500 * 32) < 10  # bytes a piece: 1.6 found, 45 with all pieces in memory


def test_a_disk_that_is_full_of_pieces(tiny_bert, tmp_path, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(CacheError, match="the disk is full"):
        cache_activations(load_encoder(tiny_bert, device="cpu"), task(5, 3), out=tmp_path / "c.h5")
    assert not list(tmp_path.iterdir())


def test_the_cache_of_a_large_job_is_intact(tiny_bert, tmp_path, monkeypatch):
    """Equal texts far apart, in other blocks than the first."""
    monkeypatch.setattr("probekit.activations.writing.plan.LEAST_TOKENS", 60)
    some = task(40, 5).split("train").examples
    again = tuple(Example(f"again-{e.id}", e.text, e.label) for e in some[::-1])
    many = Task("again", TaskKind.CLASSIFICATION, {"train": Split("train", some + again)}, ("a", "b"))
    cache = cache_activations(load_encoder(tiny_bert, device="cpu"), many, out=tmp_path / "c.h5")
    assert (cache.layer(2)[:40] == cache.layer(2)[40:][::-1]).all()
    assert verify(cache.path).ok
