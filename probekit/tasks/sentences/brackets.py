"""Constituency trees in brackets, as in the Penn Treebank: ``((S (NP (NNP Ann)) (VP (VBZ sings)) (. .)))``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from probekit.errors import DataError
from probekit.files import stream_lines
from probekit.notes import logger

log = logger(__name__)
TRACE = "-NONE-"
"""The tag of an empty element."""
ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "\\/": "/", "\\*": "*"}
"""What stands for brackets, slashes and asterisks, also inside words: 1\\/2."""
_ESCAPED = re.compile("|".join(map(re.escape, ESCAPED)))
_TOKEN = re.compile(r"[()]|[^\s()]+")
_FUNCTION = re.compile(r"[-=|].*")


@dataclass(frozen=True, slots=True)
class Node:
    """A constituent, or a word with its tag.

    Attributes
    ----------
    label : str
        The category, or the tag of a word; without function tags and indices ("NP" of "NP-SBJ-1").
    children : tuple[Node, ...], default ()
        Empty for a word.
    word : str, default ''
        The word; "" for a constituent.
    functions : tuple[str, ...], default ()
        The function tags, such as ("SBJ",).
    """

    label: str
    children: tuple[Node, ...] = ()
    word: str = ""
    functions: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Node, ...]:
        """The words below, in order; the node itself if it is a word."""
        return (self,) if self.word else tuple(leaf for child in self.children for leaf in child.leaves)

    @property
    def depth(self) -> int:
        """The number of edges to the deepest word below, 0 for a word; the edge from tag to word is not counted."""
        return 1 + max(child.depth for child in self.children) if self.children else 0


def read_brackets(path: Path, *, traces: bool = False) -> Iterator[tuple[str, int, Node]]:
    """The trees of a file, each with its document ("" if the file names none) and the line on which it begins.

    A tree takes one line or several. A line may begin with ``FILE TAB NUMBER TAB``: FILE is then the document. Traces
    (``-NONE-``) and what holds nothing else are left out, unless ``traces``: PropBank counts them. A nameless outer
    bracket is left out too, or ROOT or TOP.

    Raises
    ------
    DataError
        If brackets are not balanced, a constituent holds nothing, mixes words and constituents or has no label, or
        there is text outside brackets.
    """
    document, began, held = "", 0, 0
    stack: list[list[str | Node | None]] = []
    for number, line in enumerate(stream_lines(path), start=1):
        named = line.partition("(")[0].split("\t") if "\t" in line.partition("(")[0] else []
        if stack and (named or line.startswith("(")):
            held = held or began  # perhaps it lacks a bracket
        if named and stack:
            raise _unclosed(path, began, f"; another begins on line {number}")
        if named:
            document, line = named[0], line[line.index("(") :] if "(" in line else line
        for token in _TOKEN.findall(line):
            if token == "(":
                began = began if stack else number
                stack.append([])
            elif not stack:
                what = (
                    "a closing bracket without an opening one" if token == ")" else f"{token[:40]!r} outside brackets"
                )
                raise DataError(f"found {what}, expected a tree such as (S (NP …) (VP …)).", file=path, line=number)
            elif token == ")":
                node = _node(stack.pop(), path, number, traces)
                if stack:
                    stack[-1].append(node)
                elif node is not None:
                    yield document, began, _clause(node)
                else:
                    log.warning("%s, line %s: the tree holds only traces, so it is no sentence.", path, began)
            else:
                stack[-1].append(token)
    if stack:
        raise _unclosed(path, held or began, "")


def _unclosed(path: Path, line: int, more: str) -> DataError:
    return DataError(f"the tree that begins here lacks a closing bracket{more}.", file=path, line=line)


def _node(parts: list[str | Node | None], path: Path, line: int, traces: bool) -> Node | None:
    """The node of what stands between two brackets (None: what was left out); None for a trace, or only such inside."""
    words = [part for part in parts if isinstance(part, str)]
    children = tuple(part for part in parts if isinstance(part, Node))
    if len(words) == 2 and len(parts) == 2:
        return (
            None
            if words[0] == TRACE and not traces
            else Node(words[0], word=_ESCAPED.sub(lambda m: ESCAPED[m[0]], words[1]))
        )
    if len(words) > 1 or (words and parts[0] != words[0]) or len(parts) == len(words):
        shown = " ".join(part if isinstance(part, str) else f"({part.label if part else TRACE} …)" for part in parts)
        message = f"found the bracket ({shown[:60]}), expected a tag and a word, or a label and constituents."
        raise DataError(message, file=path, line=line)
    if not children:
        return None
    label, *functions = (words[0] if words else "").split("-")
    return Node(_FUNCTION.sub("", label), children, "", tuple(f for f in functions if not f.isdigit()))


def _clause(node: Node) -> Node:
    """The tree without outer brackets that have no name, or are called ROOT or TOP."""
    while node.label in ("", "ROOT", "TOP") and len(node.children) == 1 and node.children[0].children:
        node = node.children[0]
    return node
