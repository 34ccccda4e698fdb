"""A step of a study: a command of probekit, with what it needs and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import xxhash

__all__ = ["OUT", "Step"]

OUT = "{out}"
"""Stands in a step's words for the folder of the study."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command.

    words : of ``probekit WORDS…``; ``OUT`` stands for the study's folder
    needs : names of the steps that must be done before; leaves : files, relative to the study's folder
    reads : what comes from outside and determines the result, by the words that name it: digests
    work : floating-point operations, roughly, beside ``seconds`` of other work; space : bytes of caches, roughly
    between : whether what it leaves is for other steps alone, and may be gone once these are done
    partly : whether it is done without those of its needs that failed, as long as one is there
    error : why it cannot be done, where that is known already
    """

    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    reads: Mapping[str, str] = field(default_factory=dict)
    work: float = 0.0
    seconds: float = 3.0
    space: float = 0.0
    between: bool = False
    partly: bool = False
    error: str = ""

    def lost(self, broken: Collection[str]) -> str | None:
        """One of its needs that is among ``broken`` and without which it cannot be done."""
        lacking = [name for name in self.needs if name in broken]
        enough = self.partly and len(lacking) < len(self.needs)
        return lacking[0] if lacking and not enough else None

    def digest(self, done: Mapping[str, str]) -> str:
        """xxh3 of what determines the result, wherever the study lies; ``done`` are the digests of what it needs.

        A word that names something outside counts by what is there, not by its name.
        """
        told = [self.reads.get(word, word) for word in self.words]
        return xxhash.xxh3_128_hexdigest(json.dumps([told, [done[name] for name in self.needs]]).encode())
