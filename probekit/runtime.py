"""Device, dtype, threads and progress: what a job is told about the machine it runs on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

from probekit.errors import UsageError

__all__ = ["Dtype", "Progress", "blas_thread", "cores", "no_progress", "processes", "resolve_device", "torch_threads"]


class Dtype(StrEnum):
    """Numbers that the model computes in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Progress(Protocol):
    """Called as work goes on; the command line draws it, the library stays quiet."""

    def __call__(self, stage: str, done: int, total: int, /, **rates: float) -> None:
        """``done`` of ``total`` units of ``stage`` are finished; ``rates`` holds running totals such as tokens."""


def no_progress(stage: str, done: int, total: int, /, **rates: float) -> None:
    """Progress that nobody watches."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes() -> tuple[int, int]:
    """This process's rank and the number of processes, as torchrun tells them; (0, 1) for a process alone."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def torch_threads(count: int) -> Iterator[int]:
    """Let torch use ``count`` threads within an operation; yields how many it used before. A decorator, too.

    Small operations on several threads cost more in waiting than they save, and sum in another order.
    """
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count)
        yield before
    finally:
        torch.set_num_threads(before)


@contextmanager
def blas_thread() -> Iterator[None]:
    """Let BLAS use one thread: several stall each other beside threads of ours, and sum in another order."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _controller() -> Any:
    """What knows the loaded libraries, looked up once: that takes longer than much of the work."""
    import numpy  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def resolve_device(device: str = "auto") -> str:
    """The torch device string to use: "auto" takes CUDA, then MPS, then the CPU.

    Raises UsageError where the device asked for is not there.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind = device.partition(":")[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there:
        raise UsageError(f"unknown device {device!r}; there are auto, cpu, cuda, cuda:N and mps.")
    if not there[kind]:
        raise UsageError(f"device {device!r} was asked for, but torch sees none here; use --device cpu.")
    return device
