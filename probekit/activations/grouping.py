"""Which examples of a cache belong together: what its task declares, what texts and vectors tell, or a column."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.options import GROUPS
from probekit.activations.writing.request import data_digest
from probekit.errors import DataError, UsageError
from probekit.runtime import Progress, no_progress
from probekit.statistics.duplicates import Numbered, find_groups, related, text_numbers
from probekit.statistics.equal_rows import copies, equal_everywhere, with_copies
from probekit.tasks.context import in_context
from probekit.tasks.load import load_task
from probekit.tasks.task import Example, Task, TaskKind

if TYPE_CHECKING:
    from probekit.activations.cache import ActivationCache

__all__ = ["Groups", "cached_groups", "groups_of", "seen_in_train", "stored_groups", "with_equal_vectors"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of the examples of a cache.

    Attributes
    ----------
    of : np.ndarray, optional
        int32 (n,), None where every example stands for itself.
    made : str
        "declared", "found", "domain" or the name of a column, "" for none.
    told : dict[str, int]
        Of those found: how many examples are equal, share a sentence, are near copies, have equal vectors; links left
        apart.
    """

    of: np.ndarray | None = None
    made: str = ""
    told: dict[str, Any] | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of rows that say so; {} where every example stands for itself."""
        if self.of is None:
            return {}
        return {
            "groups": self.made,
            "n_groups": int((np.bincount(self.of) > 0).sum()),
            "largest_group": int(np.bincount(self.of).max()),
        }


def stored_groups(
    examples: Sequence[Example], kind: TaskKind, *, progress: Progress = no_progress
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What a cache stores of groups: datasets, and how they were made; nothing where no two belong together."""
    if any(e.group is not None for e in examples):
        of, told = _declared(examples)
        encoded = [name.encode(errors="backslashreplace") for name in told]
        kept = np.array(encoded, dtype=f"S{max(map(len, encoded)) or 1}")
        return {"/groups": of, "/group_names": kept}, {"made": "declared"}
    pairs = kind is not TaskKind.SEQUENCE_LABELLING and any(e.pair is not None for e in examples)
    found = find_groups(_numbered(examples, pairs=pairs), _domains([e.domain for e in examples]), progress=progress)
    if found.count == len(examples):
        return {}, {}
    return {"/groups": found.of}, {"made": "found", **_counts(found)}


def seen_in_train(task: Task) -> dict[str, int]:
    """By split how many examples have a text that train has as well, or a near copy of one; {} without train."""
    if "train" not in task.splits:
        return {}
    pairs = task.kind is not TaskKind.SEQUENCE_LABELLING and any(s.paired for s in task.splits.values())
    train = _numbered(task.splits["train"].examples, pairs=pairs)
    others = [split for name, split in task.splits.items() if name != "train" and len(split)]
    return {s.name: int(related(train, _numbered(s.examples, pairs=pairs)).sum()) for s in others}


def _numbered(examples: Sequence[Example], *, pairs: bool) -> list[Numbered]:
    """The words of texts, and of the second ones of pairs, as numbers."""
    parts: list[Numbered] = [text_numbers([e.text if e.words is None else " ".join(e.words) for e in examples])]
    return [*parts, text_numbers([e.pair or "" for e in examples])] if pairs else parts


def _declared(examples: Sequence[Example]) -> tuple[np.ndarray, list[str]]:
    """The number of each example's group, and the names of groups; "" of one for an example that tells none."""
    known: dict[str, int] = {}
    names = [f"={i}" if e.group is None else f":{e.group}" for i, e in enumerate(examples)]
    of = np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int32)
    return of, [name[1:] if name[0] == ":" else "" for name in known]


def _domains(domains: Sequence[str | None]) -> np.ndarray | None:
    """The domain of each example, an example without one being of its own; None where there are none."""
    if not any(domains):
        return None
    return np.array([f":{domain}" if domain else f"={i}" for i, domain in enumerate(domains)])


def _counts(found: Any) -> dict[str, int]:
    return {name: getattr(found, name) for name in ("equal", "shared", "near", "domain", "apart")}


def groups_of(cache: ActivationCache, how: str = "auto") -> Groups:
    """The groups of a cache's examples.

    Parameters
    ----------
    how : str
        "auto": those that the task declares, else what is found: equal texts, shared sentences of pairs and near
        copies. A cache without groups (of before version 0.3, or of examples that are all alone) is searched, by the
        pieces of its texts. "domain": the examples' domains. "none". Anything else is a column of the data that the
        cache's task file describes; they are read again.

    Raises
    ------
    UsageError
        For domains where there are none, and for a column that cannot be had.
    """
    if how == "none":
        return Groups()
    if how == "domain":
        if cache.domains is None:
            raise UsageError(f"{cache.path}: {cache.spec['task']} has no domains; give other groups.")
        return Groups(np.unique(cache.domains.astype(str), return_inverse=True)[1].astype(np.int32), "domain")
    if how != "auto":
        return Groups(_column(cache, how), how)
    return _said(cache, cached_groups(cache))


def cached_groups(cache: ActivationCache) -> Groups:
    """The groups that a cache's task declares, or that are found: those of "auto"; nothing is said."""
    stored = cache.groups
    if stored is not None:
        told = cache.grouping
        return Groups(stored, told.get("made", "declared"), told)
    found = find_groups(cache.pieces, None if cache.domains is None else _domains(cache.domains.tolist()))
    return Groups() if found.count == len(found.of) else Groups(found.of, "found", _counts(found))


def _column(cache: ActivationCache, name: str) -> np.ndarray:
    """The groups that a column of the data of a cache's task file makes, int32 (n,)."""
    told = {} if cache.recipe is None else {**cache.recipe.defaults, **cache.recipe.arguments}
    file = str(told.get("task"))
    refused = f"{cache.path}: groups are {', '.join(GROUPS)} or a column of the data of a task file, not {name!r}"
    if not file.endswith(".toml"):
        raise UsageError(f"{refused}; {cache.spec['task']} was read from no task file.")
    try:
        parts = []
        for column in (None, name):
            task = in_context(load_task(file, told.get("data_dir"), groups=column), told.get("context", "none"))
            parts.append(task.split(cache.spec["split"]).sample(told.get("limit"), told.get("data_seed", 0)))
    except DataError as error:
        raise UsageError(f"{refused}. {error}") from None
    if data_digest(parts[0].digest(), task.label_names) != cache.spec["data_digest"]:
        raise UsageError(f"{cache.path}: the data of {file} have changed since the cache was made; make it again.")
    return _declared(parts[1].examples)[0]


def with_equal_vectors(cache: ActivationCache, groups: Groups, layers: Sequence[Callable[[], Any]]) -> Groups:
    """Groups joined where vectors are equal in every layer, as the same input gives them, whatever the texts say."""
    code = equal_everywhere(layers[::-1])  # the last layer is the one in which most rows differ
    same = None if code is None else copies(code, layers[-1]())
    joined = with_copies(groups.of, same)
    if joined is None or same is None or joined is groups.of:
        return groups
    of = np.unique(joined, return_inverse=True)[1].reshape(-1).astype(np.int32)
    own = len(of) if groups.of is None else len(np.unique(groups.of))
    if more := own - (int(of.max()) + 1):
        log.warning(
            "%s %s: %s of %s examples are copies of others, for all their vectors are equal; they are shuffled, held "
            "out and drawn with them.",
            cache.spec["task"], cache.spec["split"], f"{more:,}", f"{len(of):,}",
        )  # fmt: skip
        return replace(groups, of=of, made=groups.made or "found")
    return groups


def _said(cache: ActivationCache, groups: Groups) -> Groups:
    """Tell what was found, and what is done about it."""
    if groups.made != "found" or groups.of is None:
        return groups
    told, size = groups.told or {}, np.bincount(groups.of)
    names = {"equal": "equal to another", "shared": "with a sentence of another", "near": "near copies"}
    names |= {"domain": "of domains whose texts are made alike"}
    kinds = [f"{told[name]:,} {called}" for name, called in names.items() if told.get(name)]
    log.warning(
        "%s %s: %s of %s examples are no independent evidence (%s). They stand in %s groups, the largest of %s, which "
        "are shuffled, held out and drawn as wholes; --groups none takes each example for itself.%s",
        cache.spec["task"],
        cache.spec["split"],
        f"{int(size[size > 1].sum()):,}",
        f"{len(groups.of):,}",
        ", ".join(kinds),
        f"{int((size > 1).sum()):,}",
        f"{int(size.max()):,}",
        f" {told['apart']:,} further links were left out, for groups would have become too large."
        if told.get("apart")
        else "",
    )
    return groups
