"""Python in two processes that find each other, as torchrun starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

__all__ = ["in_two_processes"]


def in_two_processes(code: str, *arguments: str, **environment: str) -> list[tuple[int, str]]:
    """Run ``code`` in both; the exit status of each, and what it wrote."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **environment,
    }  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments], env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [one.communicate(timeout=240)[0] for one in started]
    return [(one.returncode, text) for one, text in zip(started, said, strict=True)]
