"""Tensor parallelism: processes that hold slices of one model, and run every forward pass together.

Each process that torchrun starts loads its slices by the plan of transformers (``base_model_tp_plan``). A pass works
only if all of them enter it at once, so there are two ways to use the model. While it is loaded and its sites are
proven, all processes run the same code. Afterwards process 0 may lead: it alone does the work, and before each pass it
sends the model's arguments to the others, which wait for them.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from probekit.errors import ModelError, UsageError, first_line
from probekit.models.sites.errors import vector_error
from probekit.models.transformers.packed import Groups
from probekit.runtime import processes, resolve_device

STEP = timedelta(minutes=30)
"""How long a process waits for the others within a pass; they may still be reading their weights."""
WAIT = timedelta(days=3650)
"""How long the others wait for what process 0 does next."""


SAME = 1e-6
"""Relative difference of vectors in two processes that are the same tensor: each has received the same sum."""


class Ranks:
    """This process among those that hold one model.

    Attributes
    ----------
    rank, size : int
        Its number, from 0, and how many there are.
    leads : bool
        Whether it sends the arguments of each pass to the others.
    inside : bool
        Whether it is in the middle of a pass, or of loading; the others are, too. If an error ends it there, they can
        be told nothing, and end when its connections close with it.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.leads, self.inside = rank, size, False, False
        self.control = dist.new_group(backend="gloo", timeout=WAIT)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Passes that every process enters by itself."""
        leads, self.leads, self.inside = self.leads, False, True
        try:
            yield
            self.inside = False
        finally:
            self.leads = leads

    def tell(self, what: str, inputs: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Send a message from process 0; ``inputs`` are arguments of the model."""
        described, data = _described(inputs or {})
        head = json.dumps({"what": what, "inputs": described, **more}).encode()
        text = np.frombuffer(len(head).to_bytes(8, "little") + head + data, dtype=np.uint8).copy()
        with in_words():
            dist.broadcast(torch.tensor([len(text)]), 0, group=self.control)
            dist.broadcast(torch.from_numpy(text), 0, group=self.control)

    def heard(self, device: torch.device) -> dict[str, Any]:
        """The next message of process 0, its inputs on ``device``."""
        size = torch.zeros(1, dtype=torch.int64)
        with in_words():
            dist.broadcast(size, 0, group=self.control)
            text = torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(text, 0, group=self.control)
        raw = text.numpy().tobytes()
        end = 8 + int.from_bytes(raw[:8], "little")
        message: dict[str, Any] = json.loads(raw[8:end])
        return message | {"inputs": _restored(message["inputs"], raw[end:], device)}

    def widths(self, rows: torch.Tensor) -> tuple[int, ...]:
        """The width of ``rows`` (…, width) in each process."""
        parts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(parts, torch.tensor([rows.shape[-1]]), group=self.control)
        return tuple(int(part) for part in parts)

    def different(self, rows: torch.Tensor) -> float:
        """By how much other processes' rows differ from those of process 0, relative; infinite for other widths."""
        if len(set(self.widths(rows))) > 1:
            return float("inf")
        own = rows.detach().cpu().double().contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(parts, own, group=self.control)
        return max(vector_error(part, parts[0]) for part in parts[1:])

    def largest(self, number: float) -> float:
        """The largest of the numbers of all processes, so that all decide alike."""
        found = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control)
        return float(found)

    def agree(self, text: str) -> bool:
        """Whether all processes give the same text."""
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")
        return self.largest(number) == -self.largest(-number)

    def joined(self, rows: torch.Tensor, widths: Sequence[int] | None = None) -> torch.Tensor:
        """The slices of all processes side by side: (…, width) of each becomes (…, sum of widths)."""
        widths = widths or (rows.shape[-1],) * self.size
        most = max(widths)
        own = torch.nn.functional.pad(rows, (0, most - rows.shape[-1])).contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(parts, own)
        return torch.cat([part[..., :width] for part, width in zip(parts, widths, strict=True)], -1)


_joined: list[Ranks] = []


def join_ranks(device: str) -> Ranks:
    """This process among those that torchrun started, each of which holds a slice of the model.

    Raises
    ------
    UsageError
        If this process is the only one, or the device is not the one that transformers uses for tensor parallelism.
    """
    if _joined:
        return _joined[0]
    rank, size = processes()
    if size < 2:
        raise UsageError(
            "--tp-plan gives each process a slice of the model, but there is one process; start several: torchrun "
            "--nproc-per-node N -m probekit …"
        )
    kind, here = torch.device(resolve_device(device)).type, torch._C._get_accelerator().type
    if kind != here:
        raise UsageError(f"tensor parallelism runs on {here} on this machine, not on {kind}; leave out --device.")
    own, gpus = int(os.environ.get("LOCAL_RANK", rank)), torch.cuda.device_count()
    if kind == "cuda":
        if own >= gpus:
            raise UsageError(f"there are more processes than GPUs ({gpus}); use --nproc-per-node {gpus}.")
        torch.cuda.set_device(own)
    elif kind != "cpu":
        raise UsageError(f"tensor parallelism runs on NVIDIA GPUs and on the CPU, not on {kind}.")
    if not dist.is_initialized():
        try:
            dist.init_process_group(
                "nccl" if kind == "cuda" else "gloo", timeout=STEP,
                device_id=torch.device(kind, own) if kind == "cuda" else None,
            )  # fmt: skip
        except (ValueError, RuntimeError) as error:
            raise UsageError(
                f"the {size} processes do not find each other ({first_line(error)}); start them with torchrun."
            ) from error
        atexit.register(_leave)
    _joined.append(Ranks(rank, size))
    return _joined[0]


def _leave() -> None:
    with suppress(Exception):
        dist.destroy_process_group()


@contextmanager
def in_words() -> Iterator[None]:
    """Say what it means that a connection to another process is lost."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (dist.DistError, RuntimeError) as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise ModelError(LOST) from error


LOST = (
    "another process that holds a part of the model has ended, and says why. What is finished is kept: run the same "
    "command again."
)


def _described(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The arguments of a pass as JSON, and the bytes of the tensors among them."""
    found: dict[str, Any] = {}
    data = b""
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            array = value.cpu().numpy()
            found[name] = {"dtype": str(array.dtype), "shape": array.shape}
            data += array.tobytes()
        elif isinstance(value, Groups):
            found[name] = {"groups": value.parts}
        elif value is None or isinstance(value, bool):
            found[name] = value
        else:
            raise ModelError(f"{name} of type {type(value).__name__} cannot be sent to the other processes.")
    return found, data


def _restored(described: Mapping[str, Any], data: bytes, device: torch.device) -> dict[str, Any]:
    """What :func:`_described` describes."""
    found: dict[str, Any] = {}
    at = 0
    for name, value in described.items():
        if not isinstance(value, dict):
            found[name] = value
        elif "groups" in value:
            found[name] = Groups(tuple(map(tuple, value["groups"])))
        else:
            count = int(np.prod(value["shape"], dtype=np.int64))
            array = np.frombuffer(data, value["dtype"], count, at).reshape(value["shape"]).copy()
            found[name], at = torch.from_numpy(array).to(device), at + array.nbytes
    return found
