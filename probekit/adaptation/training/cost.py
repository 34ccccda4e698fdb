"""What a training costs: processor time and peak memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import torch

__all__ = ["Cost", "measured"]

_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(slots=True)
class Cost:
    """The cost of a training in this process.

    Attributes
    ----------
    cpu_seconds : float
        Processor time of all threads, in seconds.
    peak_memory : int, optional
        Largest memory in bytes: of the GPU if it trains there, otherwise resident memory of the process, with all that
        it held before. None where the system does not tell it.
    """

    cpu_seconds: float = 0.0
    peak_memory: int | None = None


@contextmanager
def measured(device: str) -> Iterator[Cost]:
    """Measure the cost of the block, which trains on a device; the numbers are there when it ends."""
    cost, began = Cost(), process_time()
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # not on Linux, or not allowed: the peak is then that of the whole process
            _REFERENCES.write_text("5")  # begin to measure the peak anew (man 5 proc)
    try:
        yield cost
    finally:
        cost.cpu_seconds = round(process_time() - began, 3)
        cost.peak_memory = torch.cuda.max_memory_allocated(device) if on_gpu else _peak()


def _peak() -> int | None:
    """The largest resident memory of this process in bytes."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
