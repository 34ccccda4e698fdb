"""What strangers write into TOML and JSON: valid files with values, keys and sections of another kind; and a guard."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

__all__ = ["HOSTILE_TEXTS", "HOSTILE_VALUES", "guarded", "restructured"]

HOSTILE_TEXTS = (
    "", " ", "\0", "\n", "x" * 10_000, "../../../etc/passwd", "/etc/passwd", "/dev/zero", "/proc/self/mem", "/",
    "~root", "C:\\x",
    "-1", "--out", "nan", "1e400", "http://127.0.0.1:9/x", "https://127.0.0.1:9/x.toml", "ftp://127.0.0.1:9/x",
    "dask://127.0.0.1:9/x::file:///x", "reference://x::data:,%7B%7D", "simplecache::http://127.0.0.1:9/x",
    "file:///etc/passwd", "s3://127.0.0.1/x", "memory://x", "git+https://127.0.0.1/x", "//127.0.0.1/share",
    "{task}", "{0.__class__.__mro__}", "%s%n%(x)s", "{{7*7}}", "{% import os %}", "${HOME}", "$(touch CANARY)",
    "`touch CANARY`",
    "; touch CANARY", "__import__('os').system('touch CANARY')", "probekit.files:remove", "os:system", "random:",
    "elmo:x,y",
    "skip-thoughts:/", "a.toml:b:c", "x+y+x", "grammar:acceptability", "<script>alert(1)</script>",
    "\\write18{touch CANARY}",
    "$x^{2$", "\x1b]0;x\x07", "\u202eabc", "é日本", "null", "*", "[", "(?", "0:9999999999:1",
)  # fmt: skip
HOSTILE_VALUES: tuple[Any, ...] = (
    *HOSTILE_TEXTS, True, False, 0, -1, 1, 2**31, 2**63, 10**18, 10**30, 1.5, -0.0, math.nan, math.inf, -math.inf,
        1e308, 5e-324,
    [], {}, [[]], [1, "a", [True]], {"a": {"b": {}}}, ["x"] * 2000, {"x" * 3000: 1}, date(2020, 2, 29), [None], None,
    {"low": 1e308, "high": -1e308, "log": True}, {"low": 0, "high": 10**25}, ["", ""], [[[[[[[[[[1]]]]]]]]]],
)  # fmt: skip
WAYS = ("value", "value", "value", "text", "key", "drop", "double", "wrap", "swap", "more", "deep")


def restructured(data: bytes, suffix: str, changes: list[tuple[float, int]]) -> bytes:
    """A TOML or JSON file (of lines, the first) with changes of its structure.

    Each is a place from 0 to 1, and a number that says which.
    """
    if suffix == ".jsonl":
        first, *rest = data.splitlines(keepends=True)
        return b"".join((restructured(first, ".json", changes), b"\n", *rest))
    content = tomllib.loads(data.decode()) if suffix == ".toml" else json.loads(data)
    again = False
    for place, number in changes:
        try:
            rng, nodes = random.Random(number), list(_nodes(content))
        except RecursionError:
            break
        if not nodes:
            break
        inside, key = nodes[int(place * (len(nodes) - 1))]
        match rng.choice(WAYS):
            case "value":
                inside[key] = copy.deepcopy(rng.choice(HOSTILE_VALUES))
            case "text":
                inside[key] = rng.choice(HOSTILE_TEXTS)
            case "key" if isinstance(inside, dict):
                inside[rng.choice(HOSTILE_TEXTS) or "x"] = inside.pop(key)
            case "drop":
                del inside[key]
            case "double":
                again = True
            case "wrap":
                inside[key] = copy.deepcopy(rng.choice(([inside[key]], {"x": inside[key]}, [inside[key]] * 50)))
            case "swap":
                other, its = rng.choice(nodes)
                if not _below(inside[key], other) and not _below(other[its], inside):
                    inside[key], other[its] = other[its], inside[key]
            case "more" if isinstance(inside, dict):
                inside[rng.choice(HOSTILE_TEXTS)] = copy.deepcopy(rng.choice(HOSTILE_VALUES))
            case "deep":
                for _ in range(rng.choice((20, 200, 2000))):
                    inside[key] = [inside[key]]
    try:
        text = _toml(content) if suffix == ".toml" else json.dumps(content, default=str)
    except RecursionError:
        return b"x = " + b"[" * 5000 if suffix == ".toml" else b"[" * 5000
    if again and content:
        text = text + text if suffix == ".toml" else text[:-1] + "," + text[1:]
    return text.encode("utf-8", "surrogatepass")


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a value: what it is in, and its key or number there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _nodes(value[key])


def _below(value: Any, container: Any) -> bool:
    return value is container or any(inside is container for inside, _ in _nodes(value))


def _toml(value: Any) -> str:
    """A value as TOML, on one line below its first key."""
    return "".join(f"{json.dumps(str(key), ensure_ascii=False)} = {_inline(one)}\n" for key, one in value.items())


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(str(k), ensure_ascii=False)} = {_inline(v)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


_watching: list[str] | None = None
_OURS = ("numba", "__pycache__", "matplotlib", "/dev/null", "/dev/shm", "/proc/self/")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_RUNS = {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pty.spawn"}
_CONNECTS = {
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "ftplib.connect",
    "urllib.Request",
}
_CHANGES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "shutil.rmtree",
            "shutil.move", "shutil.copyfile"}  # fmt: skip


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watching is None:
        return
    if event in _RUNS | _CONNECTS:
        _watching.append(f"{event} {args!r}"[:300])
    elif event == "open" and (args[2] or 0) & _WRITES and _is_foreign(args[0]):
        _watching.append(f"writes {args[0]!r}"[:300])
    elif (
        event in _CHANGES
        and not _inside(args)
        and any(isinstance(one, str | bytes | os.PathLike) and _is_foreign(one) for one in args[:2])
    ):
        _watching.append(f"{event} {args[:2]!r}"[:300])


def _inside(args: tuple[Any, ...]) -> bool:
    """Whether a change is of a file in an open folder, whose removal was seen before."""
    return isinstance(args[-1], int) and args[-1] >= 0


def _is_foreign(path: Any) -> bool:
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a link is not followed
    return not text.startswith(os.path.realpath(tempfile.gettempdir())) and not any(one in text for one in _OURS)


@contextmanager
def guarded() -> Iterator[list[str]]:
    """What happened in the block that must not: connections, programs run, files changed outside temporary folders."""
    global _watching
    if _hook not in _installed:
        sys.addaudithook(_hook)
        _installed.append(_hook)
    before, _watching = _watching, []
    try:
        yield _watching
    finally:
        _watching = before


_installed: list[Any] = []
