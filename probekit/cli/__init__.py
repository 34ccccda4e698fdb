"""The command line: ``probekit COMMAND``. Each command parses, calls one function and prints.

Exit status: 0 done, 1 a check failed, 2 wrong usage or input, with one plain sentence on standard error
(``--debug`` shows the traceback), 3 an error inside probekit, with the file that holds the traceback,
130 interrupted, 141 the reader of standard output has closed it (``probekit tasks | head``).
"""

from __future__ import annotations

import errno
import gc
import inspect
import logging
import os
import re
import select
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from probekit.display import shown
from probekit.errors import ProbekitError, close_names, first_line
from probekit.files import DRAFT, writer_of
from probekit.former import FORMER
from probekit.notes import is_new

if TYPE_CHECKING:
    from cyclopts import CycloptsError

__all__ = ["main"]

FAULT, INTERRUPTED, UNREAD = 3, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; ``arguments`` default to those of the process."""
    for name in ("COLUMNS", "LINES"):  # rich reads them, and takes ² for a number, and 10**9 for a width
        if not re.fullmatch("[1-9][0-9]{0,3}", os.environ.get(name, "80")):
            del os.environ[name]
    try:
        status = _status(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if _is_unread(stream):
                os.dup2(null, stream.fileno())  # nothing more is written when the interpreter ends
        os.close(null)
        return UNREAD
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # from rich
            return UNREAD
        raise
    finally:
        if arguments is None:
            gc.freeze()  # the process ends, and collecting the objects of torch would take it a second of computing
    return status


def _is_unread(stream: TextIO) -> bool:
    """Whether a stream is a pipe whose reader has closed it."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # no descriptor; no poll on this system
        return False


def _status(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if any("\0" in word for word in words):
        return _fail("an argument contains a NUL character; no name or number may contain one.")
    try:
        return _run(words)
    except KeyboardInterrupt as interrupt:
        during = f" during {interrupt}" if str(interrupt) else ""
        message = f"interrupted{during}; run the same command again to resume (caches, training, searches)."
        print(f"probekit: {message}", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except (ProbekitError, OSError) as error:
        if debug or (isinstance(error, BrokenPipeError) and (_is_unread(sys.stdout) or _is_unread(sys.stderr))):
            raise
        return _fail(_of_system(error) if isinstance(error, OSError) else _as_typed(str(error), words))
    except MemoryError as error:
        if debug:
            raise
        detail = f" ({first_line(error)})" if str(error) else ""
        return _fail(f"not enough memory{detail}; read fewer layers or examples at a time, or a smaller file.")
    except BaseException as error:  # Rust panics, from tokenizers and safetensors, are not Exceptions
        if debug or isinstance(error, SystemExit | GeneratorExit):
            raise
        _fail(f"an error inside probekit, {type(error).__name__}: {first_line(error)[:200]}; {_written(error)}")
        return FAULT


_WHY = {
    errno.ENOSPC: "the disk is full. Free some space there, or write elsewhere; existing files are unchanged",
    errno.EDQUOT: "your disk quota is used up. Free some space there, or write elsewhere; existing files are unchanged",
    errno.EFBIG: "files of this size are not allowed there (ulimit -f). Raise the limit, or write elsewhere; existing "
    "files are unchanged",
    errno.EROFS: "the disk is read-only. Choose another place",
    errno.EACCES: "you have no permission. Choose another place",
    errno.EPERM: "the system does not permit it. Choose another place",
    errno.EEXIST: "it exists. Choose another name",
    errno.ENOTEMPTY: "it is a folder that is not empty. Choose another name",
    errno.ENOTDIR: "a part of its path is no folder. Check the path",
    errno.EISDIR: "it is a folder. Give a file",
    errno.ENAMETOOLONG: "its name is too long. Choose a shorter one",
    errno.ENOENT: "it does not exist. Check the path",
}
"""What the errors of the system mean, and what to do."""


def _of_system(error: OSError) -> str:
    """An error of the system: which file, by the name that the user knows, and why."""
    why = _WHY.get(error.errno or 0)
    if why is None or not str(error).startswith("[Errno"):
        return str(error)
    path = error.filename2 or error.filename
    if path is None:
        return f"{why.replace(' there', f' in the working directory, --out and {tempfile.gettempdir()}', 1)}."
    path = Path(os.fsdecode(path))
    while hidden := writer_of(path.name):
        path = path.with_name(hidden[0].removesuffix(DRAFT))
    parts = [(writer_of(part) or (part,))[0] for part in path.parts]
    return f"{Path(*parts)} cannot be opened or written: {why}."


def _written(error: BaseException) -> str:
    """Write the traceback of an error to a file, and say where it is."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="probekit-", suffix=".traceback.txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"{sys.argv}\n\n{text}")
        return f"the traceback is in {file.name}."
    except OSError as unwritable:
        return f"the traceback cannot be written ({unwritable.strerror}); --debug shows it."


def _run(words: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    from probekit.cli.commands import COMMANDS, make_app

    verbose = {"--verbose", "-v"} & set(words[:1])
    words = _spelled(words[len(verbose) :])
    _log(words, verbose=bool(verbose))
    if not words:
        make_app()(["--help"])
        return 2
    try:
        return int(make_app(words)(words) or 0)
    except CycloptsError as error:
        known = words[0] in COMMANDS
        hint = f" See probekit {words[0]} --help." if known else ""
        return _fail(f"{_misread(error, words)}{hint}")


def _misread(error: CycloptsError, words: Sequence[str]) -> str:
    """What is wrong with the words of a command line."""
    from cyclopts import CoercionError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

    token = getattr(error, "token", None)
    if isinstance(error, UnknownOptionError) and token is not None:
        option = str(token.keyword or token.value)
        former = option.partition("=")[0]
        if new := FORMER.get(words[0].replace("-", "_"), {}).get(former.lstrip("-").replace("-", "_")):
            return f"{former} is now --{new.replace('_', '-')}."
        near = re.search(r"Did you mean \W*(--[\w-]+)", str(error))
        close = near and close_names(option.lstrip("-"), [near[1].lstrip("-")])
        other = near[1] if near and close and near[1].lstrip("-") != option.lstrip("-") else ""
        return f"there is no option {option}{f'; did you mean {other}?' if other else '.'}"
    if isinstance(error, CoercionError) and token is not None and token.keyword:
        kind = {"float": "a number", "int": "a whole number"}.get(getattr(error.target_type, "__name__", ""), "")
        if kind:
            several = "," in token.value
            search = " To try several values, use probekit search." if several and words[0] == "train" else ""
            kind = kind.replace("a ", "one ", 1) if several else kind
            return f"{token.keyword} is {token.value!r}; it must be {kind}.{search}"
    if isinstance(error, MissingArgumentError) and (name := re.search(r'parameter "?([\w-]+)', str(error))):
        usage = "" if name[1].startswith("-") else f" Give {_usage(words[0])}."
        tasks = " A task is a name from probekit tasks, or a .toml file for your data." if name[1] == "TASK" else ""
        return f"{name[1]} is missing.{usage}{tasks}"
    if isinstance(error, UnusedCliTokensError):
        extra = ", ".join(map(str, error.unused_tokens or ()))
        return f"{extra} is more than the command takes. Did a pattern match more files than you meant?"
    return f"{str(error).rstrip('., ?')}."


def _usage(command: str) -> str:
    """A command with its arguments: "probekit run MODEL TASK"."""
    names = [p.name.upper() for p in _parameters(command) if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    return " ".join(["probekit", command, *names])


def _parameters(command: str) -> Sequence[inspect.Parameter]:
    """Those of the public function behind a command, which is not imported."""
    from probekit.functions import FUNCTIONS, place_of
    from probekit.heads import head

    name = command.replace("-", "_")
    return [*inspect.signature(head(place_of(name))).parameters.values()] if name in FUNCTIONS else []


def _as_typed(message: str, words: Sequence[str]) -> str:
    """A message with the options of a command as they are typed: --hold-out-domains for hold_out_domains."""
    names = [p.name.rstrip("_") for p in _parameters(words[0])] if words else []
    if not names:
        return message
    if several := "|".join(name for name in names if "_" in name):
        message = re.sub(
            rf"(?<![\w'\".-])({several})(?![\w=]|\.\w)", lambda found: f"--{found[1].replace('_', '-')}", message
        )
    return re.sub(rf"^({'|'.join(names)}) (?=(is|are|must) )", r"--\1 ", message)


def _log(words: Sequence[str], *, verbose: bool) -> None:
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False)
    handler.setFormatter(_Shown(words))
    handler.addFilter(is_new)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


class _Shown(logging.Formatter):
    """Messages name files and labels of others; ours name options as they are typed.

    Other libraries may log while a command's module is being imported, whose options are then not known yet.
    """

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__("%(message)s")
        self.words = words

    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        ours = record.name.partition(".")[0] == "probekit"
        return shown(_as_typed(message, self.words) if ours else message)


def _spelled(words: Sequence[str]) -> list[str]:
    """Spell arguments as cyclopts reads them: --no-X is --X=false; --layers -1,6 keeps its list, and --task - its -.

    A - that is an argument of its own, standard input, comes last, after --.
    """
    spelled, alone = list[str](), list[str]()
    for word in words:
        if re.fullmatch(r"-(\d+(,\S+)+)?", word) and spelled and spelled[-1].startswith("--"):
            spelled[-1] += f"={word}"
        elif word == "-":
            alone = ["--", "-"]
        else:
            spelled.append(re.sub(r"^--no-(.+)$", r"--\1=false", word))
    return spelled + alone


def _fail(message: str) -> int:
    parts = [shown(" ".join(part.split())) for part in message.split("\n  line ")]  # one line for each error in a file
    print("\n  line ".join((f"probekit: {parts[0]}", *parts[1:])), file=sys.stderr)  # noqa: T201
    return 2
