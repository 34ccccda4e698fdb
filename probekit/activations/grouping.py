"""Groups of examples in a cache: declared by its task, found in texts and vectors, or from a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.options import GROUPS
from probekit.activations.writing.request import data_digest
from probekit.errors import DataError, UsageError
from probekit.notes import logger
from probekit.runtime import Progress, no_progress
from probekit.statistics.duplicates import Numbered, find_groups, related, text_numbers
from probekit.statistics.equal_rows import copies, equal_everywhere, with_copies
from probekit.tasks.context import in_context
from probekit.tasks.load import load_task
from probekit.tasks.task import Example, Task, TaskKind

if TYPE_CHECKING:
    from probekit.activations.cache import ActivationCache

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of the examples of a cache.

    Attributes
    ----------
    of : np.ndarray, optional
        int32 (n,); None if every example is independent.
    made : str
        Origin: "declared", "found", "domain" or the name of a column, "" for no groups.
    told : dict[str, int]
        For found groups: numbers of examples that are equal, share a sentence, are near copies or have equal vectors,
        and of links left out.
    """

    of: np.ndarray | None = None
    made: str = ""
    told: dict[str, Any] | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of rows that describe the groups; {} if every example is independent."""
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
    """The groups that a cache stores: datasets, none if no two examples belong together, and what was found."""
    if any(e.group is not None for e in examples):
        of, group_names = _declared(examples)
        encoded = [name.encode(errors="backslashreplace") for name in group_names]
        stored_names = np.array(encoded, dtype=f"S{max(map(len, encoded)) or 1}")
        return {"/groups": of, "/group_names": stored_names}, {"made": "declared"}
    pairs = kind is not TaskKind.SEQUENCE_LABELLING and any(e.pair is not None for e in examples)
    found = find_groups(_numbered(examples, pairs=pairs), _domains([e.domain for e in examples]), progress=progress)
    groups = {} if found.count == len(examples) else {"/groups": found.of}
    return groups, {"made": "found", **_counts(found)}


def seen_in_train(task: Task) -> dict[str, int]:
    """For each split, how many examples have a text that also occurs in train, or a near copy; {} without train."""
    if "train" not in task.splits:
        return {}
    pairs = task.kind is not TaskKind.SEQUENCE_LABELLING and any(s.paired for s in task.splits.values())
    train = _numbered(task.splits["train"].examples, pairs=pairs)
    others = [split for name, split in task.splits.items() if name != "train" and len(split)]
    return {s.name: int(related(train, _numbered(s.examples, pairs=pairs)).sum()) for s in others}


def _numbered(examples: Sequence[Example], *, pairs: bool) -> list[Numbered]:
    """The words of texts, and of the second texts of pairs, as numbers."""
    parts: list[Numbered] = [text_numbers([e.text if e.words is None else " ".join(e.words) for e in examples])]
    return [*parts, text_numbers([e.pair or "" for e in examples])] if pairs else parts


def _declared(examples: Sequence[Example]) -> tuple[np.ndarray, list[str]]:
    """The number of each example's group, and the names of groups ("" for an example without a group)."""
    known: dict[str, int] = {}
    names = [f"={i}" if e.group is None else f":{e.group}" for i, e in enumerate(examples)]
    of = np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int32)
    return of, [name[1:] if name[0] == ":" else "" for name in known]


def _domains(domains: Sequence[str | None]) -> np.ndarray | None:
    """The domain of each example (unique for an example without one); None if there are no domains."""
    if not any(domains):
        return None
    return np.array([f":{domain}" if domain else f"={i}" for i, domain in enumerate(domains)])


def _counts(found: Any) -> dict[str, int]:
    return {name: getattr(found, name) for name in ("equal", "shared", "near", "domain", "apart")}


def groups_of(cache: ActivationCache, grouping: str = "auto") -> Groups:
    """The groups of a cache's examples.

    Parameters
    ----------
    grouping : str
        "auto": the groups that the task declares, otherwise those found: equal texts, shared sentences of pairs and
        near copies. A cache whose texts were not searched as a whole (older than version 0.3, or a folder of shards) is
        searched by the pieces of its texts. "domain": the examples' domains. "none": no groups. Anything else: a column
        of the data that the cache's task file describes; the data are read again.

    Raises
    ------
    UsageError
        If there are no domains, or the column cannot be read.
    """
    if grouping == "none":
        return Groups()
    if grouping == "domain":
        if cache.domains is None:
            raise UsageError(f"{cache.path}: {cache.spec['task']} has no domains; choose other groups.")
        return Groups(np.unique(cache.domains.astype(str), return_inverse=True)[1].astype(np.int32), "domain")
    if grouping != "auto":
        return Groups(_column(cache, grouping), grouping)
    return _with_warning(cache, cached_groups(cache))


def cached_groups(cache: ActivationCache) -> Groups:
    """The groups of "auto", declared or found, without a warning."""
    stored, stored_info = cache.groups, cache.grouping
    if stored is None and stored_info.get("made") == "found":  # its texts were searched, and are independent
        return Groups()
    if stored is not None:
        return Groups(stored, stored_info.get("made", "declared"), stored_info)
    found = find_groups(cache.pieces, None if cache.domains is None else _domains(cache.domains.tolist()))
    return Groups() if found.count == len(found.of) else Groups(found.of, "found", _counts(found))


def _column(cache: ActivationCache, name: str) -> np.ndarray:
    """The groups in a column of the data of a cache's task file, int32 (n,)."""
    arguments = {} if cache.recipe is None else {**cache.recipe.defaults, **cache.recipe.arguments}
    file = str(arguments.get("task"))
    refused, give = f"groups is {name!r}", f"Give {', '.join(GROUPS)}"
    if not file.endswith(".toml"):
        raise UsageError(f"{refused}, but {cache.spec['task']} has no task file that names columns. {give}.")
    try:
        parts = []
        for column in (None, name):
            task = in_context(
                load_task(file, arguments.get("data_dir"), groups=column), arguments.get("context", "none")
            )
            parts.append(task.split(cache.spec["split"]))
    except DataError as error:
        raise UsageError(f"{refused}: {str(error).partition('. ')[0]}. {give} or a column of the data.") from None
    drawn = parts[0].sample(arguments.get("limit"), arguments.get("data_seed", 0))
    if data_digest(drawn.digest(), task.label_names) != cache.spec["data_digest"]:
        raise UsageError(f"{cache.path}: the data of {file} have changed since the cache was created; create it again.")
    ids = {e.id for e in drawn}
    return _declared([e for e in parts[1] if e.id in ids])[0]


def with_equal_vectors(cache: ActivationCache, groups: Groups, layers: Sequence[Callable[[], Any]]) -> Groups:
    """Join groups whose vectors are equal in every layer, which means the same input, even if the texts differ."""
    code = equal_everywhere(layers[::-1])  # most rows differ in the last layer
    same = None if code is None else copies(code, layers[-1]())
    joined = with_copies(groups.of, same)
    if joined is None or same is None or joined is groups.of:
        return groups
    of = np.unique(joined, return_inverse=True)[1].reshape(-1).astype(np.int32)
    n_groups = len(of) if groups.of is None else len(np.unique(groups.of))
    if more := n_groups - (int(of.max()) + 1):
        log.warning(
            "%s %s: %s of %s examples are copies of others (all their vectors are equal); they are shuffled, held out "
            "and resampled together.",
            cache.spec["task"], cache.spec["split"], f"{more:,}", f"{len(of):,}",
        )  # fmt: skip
        return replace(groups, of=of, made=groups.made or "found")
    return groups


def _with_warning(cache: ActivationCache, groups: Groups) -> Groups:
    """The groups, with a warning that says what was found and how it is handled."""
    if groups.made != "found" or groups.of is None:
        return groups
    counts, size = groups.told or {}, np.bincount(groups.of)
    several = int((size > 1).sum())
    names = {"equal": "equal to an earlier one", "shared": "with a sentence of an earlier one", "near": "near copies"}
    names |= {"domain": "from domains with templated texts"}
    kinds = [f"{counts[name]:,} {called}" for name, called in names.items() if counts.get(name)]
    log.warning(
        "%s %s: %s of %s examples are not independent (%s). They form %s, the largest with %s examples, which "
        "are shuffled, held out and resampled together; the option groups none treats every example as independent.%s",
        cache.spec["task"],
        cache.spec["split"],
        f"{int(size[size > 1].sum()):,}",
        f"{len(groups.of):,}",
        ", ".join(kinds),
        f"{several:,} group{'s' if several > 1 else ''}",
        f"{int(size.max()):,}",
        f" {counts['apart']:,} further links were left out, because groups would have become too large."
        if counts.get("apart")
        else "",
    )
    return groups
