"""Batches: every example once an epoch, in an order that seed and epoch determine, read in runs."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.adaptation.data.batches import MEGABATCH, Batches, label_tensor, mask_of, padded, word_tensors
from probekit.adaptation.heads.head import IGNORED


def data(n, *, nbytes=0.0, seed=0):
    """Examples of random length, lying on the disk in random order."""
    rng = np.random.default_rng(seed)

    class Lengths(SimpleNamespace):
        def __len__(self):
            return n

    return Lengths(length=rng.integers(1, 60, n), order=rng.permutation(n), nbytes=nbytes)


def epoch(batches, number=0):
    batches.set_epoch(number)
    return list(batches)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 400),
    size=st.integers(1, 33),
    window=st.integers(1, 500),
    group=st.booleans(),
    shuffle=st.booleans(),
)
def test_every_example_once_and_as_many_batches_in_every_epoch(n, size, window, group, shuffle):
    batches = Batches(data(n, nbytes=1.0), size, shuffle=shuffle, group=group, window=window)
    for number in range(3):
        found = epoch(batches, number)
        assert sorted(i for rows in found for i in rows) == list(range(n))
        assert max(map(len, found)) <= size
        assert len(found) == len(batches)
        assert all(len(rows) == size for rows in found[:-1])
        assert len(found) == -(-n // size)


@pytest.mark.parametrize("nbytes", [0.0, 10.0])
@pytest.mark.parametrize("processes", [2, 3])
def test_accelerate_deals_every_example_out_to_some_process_in_every_epoch(nbytes, processes):
    batches = Batches(data(113, nbytes=nbytes), 8, window=300)
    for number in range(8):
        batches.set_epoch(number)
        shards = [list(BatchSamplerShard(batches, processes, rank)) for rank in range(processes)]
        assert {len(shard) for shard in shards} == {-(-len(batches) // processes)}
        assert {i for shard in shards for rows in shard for i in rows} == set(range(113))


@pytest.mark.parametrize("nbytes", [0.0, 10.0])
def test_seed_and_epoch_determine_the_order(nbytes):
    def make(seed):
        return Batches(data(300, nbytes=nbytes), 8, seed=seed, window=1000)

    assert epoch(make(1), 2) == epoch(make(1), 2)
    assert epoch(make(1), 2) != epoch(make(1), 3)
    assert epoch(make(1), 2) != epoch(make(2), 2)
    one = make(1)
    assert epoch(one, 0) == list(one)  # until another epoch is set
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    epoch(make(1), 5)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def padding(examples, found):
    longest = sum(examples.length[rows].max() * len(rows) for rows in found)
    return 1 - examples.length.sum() / longest


def test_grouping_takes_out_the_padding():
    examples = data(4000)
    loose, tight = (padding(examples, epoch(Batches(examples, 16, group=g))) for g in (False, True))
    assert loose > 0.4  # uniform lengths from 1 to 59: a mean of 30, and the longest of 16 near 56
    assert tight < 0.05


def test_groups_are_of_like_length_but_come_in_random_order():
    examples = data(16 * MEGABATCH)
    means = np.array([examples.length[rows].mean() for rows in epoch(Batches(examples, 16))])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4
    assert np.std([np.ptp(examples.length[rows]) for rows in epoch(Batches(examples, 16))]) < 3


def test_without_shuffling_the_longest_come_first():
    examples = data(100)
    flat = [i for rows in epoch(Batches(examples, 7, shuffle=False)) for i in rows]
    assert (np.diff(examples.length[flat]) <= 0).all()


@pytest.mark.parametrize(("n", "size", "window"), [(2000, 8, 640), (2000, 8, 100), (2000, 5, 333), (512, 32, 40)])
@pytest.mark.parametrize("group", [True, False])
def test_a_window_bounds_what_is_in_memory_and_is_read_in_runs(n, size, window, group):
    examples = data(n, nbytes=100.0)
    place = np.empty(n, dtype=int)
    place[examples.order] = np.arange(n)
    found = place[np.concatenate(epoch(Batches(examples, size, window=window * 100, group=group, seed=3)))]
    run = size * max(1, window // 16 // size)  # consecutive examples that are read together
    assert n % run == 0
    held = window // run * run
    windows = [np.sort(found[i : i + held]) for i in range(0, n, held)]
    for places in windows:
        assert len(places) <= window
        runs = places.reshape(-1, run)
        assert (np.diff(runs, axis=1) == 1).all()  # whole runs
        assert (runs[:, 0] % run == 0).all()
    assert held > window - run
    firsts = np.concatenate([places[::run] for places in windows])
    assert abs(np.corrcoef(firsts, np.arange(len(firsts)))[0, 1]) < 0.5  # in random order


def test_a_window_as_large_as_the_data_is_one():
    examples = data(300, nbytes=8.0)
    assert epoch(Batches(examples, 8, window=300 * 8)) == epoch(Batches(data(300), 8))
    assert epoch(Batches(examples, 8, window=299 * 8)) != epoch(Batches(data(300), 8))


lengths = st.lists(st.integers(0, 6), min_size=1, max_size=5).map(np.array)


@settings(max_examples=50, deadline=None)
@given(length=lengths, wide=st.integers(1, 3), fill=st.integers(-5, 5))
def test_padded_against_a_loop(length, wide, fill):
    values = np.random.default_rng(0).integers(0, 100, (int(length.sum()), wide))
    found, mask = padded(values, length, fill), mask_of(length)
    longest = max(1, int(length.max()))
    assert found.shape == (len(length), longest, wide)
    assert mask.shape == (len(length), longest)
    at = 0
    for i, n in enumerate(length):
        for j in range(longest):
            assert bool(mask[i, j]) == (j < n)
            assert found[i, j].tolist() == (values[at + j].tolist() if j < n else [fill] * wide)
        at += n


def test_words_against_a_loop():
    rng = np.random.default_rng(1)
    count = [3, 0, 5, 1]
    first = [np.sort(rng.choice(20, n, replace=False)) for n in count]
    labels = [rng.integers(-1, 4, n) for n in count]
    pieces, tags = word_tensors(first, labels)
    assert pieces.shape == tags.shape == (4, 5)
    assert pieces.dtype == tags.dtype == torch.int64
    for i, n in enumerate(count):
        for j in range(5):
            assert pieces[i, j] == (first[i][j] if j < n else -1)
            assert tags[i, j] == (labels[i][j] if j < n and labels[i][j] >= 0 else IGNORED)
    nothing = np.zeros(0, np.int64)
    pieces, tags = word_tensors([nothing], [nothing])
    assert pieces.tolist() == [[-1]]
    assert tags.tolist() == [[IGNORED]]


def test_labels():
    assert label_tensor(np.array([1, 2], np.int32)).dtype == torch.int64
    assert label_tensor(np.array([1.5])).dtype == torch.float32
