"""Damaged files: small mutations of valid ones, and a watch over who reads them."""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

HOSTILE = (
    b"-1", b"0", b"1e400", b"3e38", b"-5", b"10000000", b"1099511627776", b"99999999999999999999", b"NaN", b"null",
    b"true", b'"x"', b"[]", b"{}", b'""', b"[" * 3000, b'{"a":' * 3000, b"\xff", b"\x00", b"\xed\xa0\x80", b"1.5",
    b"[1,2]", b"1" * 5000, b"\x1b[2J", b"../../etc/passwd", b'"\\ud800"', b"-0.0", b"False", b"4294967296", b"inf",
)  # fmt: skip
"""What stands in the place of a number, a word or a field."""
NUMBERS = (0, 1, 2, 127, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[A-Za-z_]+')

Mutation = tuple[str, float, int]
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ("flip", "flip", "byte", "number", "cut", "zeros", "drop", "copy", "token", "token", "hostile")
        ),
        st.one_of(st.floats(0, 1), st.floats(0, 0.02), st.floats(0.98, 1)),
        st.integers(0, (1 << 32) - 1),
    ),
    min_size=1,
    max_size=3,
)


def damaged(data: bytes, mutations: list[Mutation]) -> bytes:
    """The bytes of a file with these mutations, one after another."""
    out = bytearray(data)
    for kind, place, number in mutations:
        at = min(int(place * len(out)), max(len(out) - 1, 0))
        size = 1 + number % 64
        match kind:
            case "flip" if out:
                out[at] ^= 1 << (number % 8)
            case "byte" if out:
                out[at] = number % 256
            case "number":
                width = (1, 2, 4, 8)[number % 4]
                out[at : at + width] = (NUMBERS[number // 4 % len(NUMBERS)] % (1 << (8 * width))).to_bytes(
                    width, "little"
                )
            case "cut":
                del out[at:]
            case "zeros":
                out[at : at + size] = bytes(size)
            case "drop":
                del out[at : at + size]
            case "copy":
                out[at:at] = out[at : at + size * 8]
            case "hostile":
                out[at:at] = HOSTILE[number % len(HOSTILE)]
            case "token":
                found = list(TOKEN.finditer(bytes(out))) if len(out) < 1 << 16 else []
                if found:
                    one = found[int(place * (len(found) - 1))]
                    out[one.start() : one.end()] = HOSTILE[number % len(HOSTILE)]
    return bytes(out)


class Hangs(BaseException):
    """Reading took too long."""


@contextmanager
def watched(seconds: int = 10, room: int = 1 << 30) -> Iterator[None]:
    """Raise Hangs after some seconds of work, or twenty times as many of waiting on a machine however busy.

    No more than ``room`` bytes are allocated beyond what there is.
    """

    def stop(*_: Any) -> None:
        raise Hangs

    used = int(re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10  # type: ignore[index]
    late = (signal.SIGPROF, signal.SIGALRM)
    before, limits = [signal.signal(one, stop) for one in late], resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + room, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds), signal.alarm(20 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0), signal.alarm(0)
        for one, handler in zip(late, before, strict=True):
            signal.signal(one, handler)
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def try_reading(read: Callable[[], Any], allowed: tuple[type[BaseException], ...], **how: int) -> str:
    """What came of reading: "read", "told", or, in words, what must not be."""
    try:
        with watched(**how):
            read()
    except allowed as error:
        return "told" if str(error).strip() else f"an empty {type(error).__name__}"
    except Hangs:
        return "hang"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "read"
