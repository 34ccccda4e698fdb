"""Processor time and peak memory of a block."""

import numpy as np
import pytest
from lessons import SHORT, praise

from probekit.adaptation.train import train
from probekit.adaptation.training.checkpointing import measured

MEGABYTE = 1 << 20


def test_the_peak_is_that_of_the_block_and_not_of_what_was_before():
    with measured("cpu") as before:
        np.ones(200 * MEGABYTE // 8).sum()
    with measured("cpu") as small:
        sum(range(10**6))
    with measured("cpu") as large:
        np.ones(100 * MEGABYTE // 8).sum()
    if large.peak_memory is None:
        pytest.skip("the system does not tell the peak of memory")
    assert 80 * MEGABYTE < large.peak_memory - small.peak_memory < 130 * MEGABYTE
    assert before.peak_memory > large.peak_memory
    assert small.cpu_seconds > 0


def test_a_run_states_its_cost(tiny_bert, tmp_path):
    card = train(praise(), tiny_bert, tmp_path / "run", **SHORT | {"epochs": 1}).card
    assert card["cost"]["cpu_seconds"] > 0
    assert card["cost"]["peak_memory"] is None or card["cost"]["peak_memory"] > 50 * MEGABYTE
