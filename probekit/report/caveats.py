"""What a reader has to know before believing a page: found in rows and cards, never guessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from probekit.plots.domains import SIZES, TERMS
from probekit.plots.noise import TASK
from probekit.report.curves import MOST_CURVES
from probekit.report.sections import Section
from probekit.report.summary import trained_rows
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd

    from probekit.report.studies import Source

__all__ = ["Caveat", "of_rows", "of_sources"]

FEW = 100
"""Examples, below which the interval of an accuracy near 1/2 is wider than 10 points to either side."""
MOST = 30
"""Lines of one caution."""
VERSIONS = ("probekit", "torch", "transformers", "numpy", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Caveat:
    """``what`` is wrong in a sentence; ``where``, of at most :data:`MOST` places."""

    what: str
    where: list[str]


def of_sources(sources: Sequence[Source]) -> Iterator[Caveat]:
    """Cards that are missing or of other rows, changed code, versions that differ, files without rows."""
    yield from _caveat("These files hold no rows.", (str(s.path) for s in sources if s.rows.empty))
    yield from _caveat("Nothing says how these rows were made.", (f"{s.path}: {s.doubt}" for s in sources if s.doubt))
    revision = {str(s.path): s.card.get("git") for s in sources if s.card}
    yield from _caveat(
        "Files of the code's repository were changed when these rows were made: its revision does not tell all.",
        _some([name for name, git in revision.items() if str(git).endswith("-dirty")], sources),
    )
    yield from _caveat(
        "No revision of the code is known, only the version of probekit.",
        _some([name for name, git in revision.items() if not git], sources),
    )
    for package in VERSIONS:
        found: dict[str, list[str]] = {}
        for source in sources:
            versions = source.card.get("versions")
            if isinstance(versions, Mapping) and package in versions:
                found.setdefault(str(versions[package]), []).append(source.path.name)
        if len(found) > 1:
            yield from _caveat(
                f"The files were made with different versions of {package}.",
                (f"{version}: {', '.join(_some(names, sources))}" for version, names in found.items()),
            )


def _some(names: list[str], sources: Sequence[Source]) -> list[str]:
    """Of many files the number is enough, where it is of all of them."""
    return [f"all {len(names):,} files"] if len(names) == len(sources) > 3 else names


def of_rows(sections: Mapping[Section, pd.DataFrame], layers: Mapping[Section, pd.DataFrame]) -> Iterator[Caveat]:
    """Noise, missing controls and intervals, few examples, what estimators say themselves."""
    for section, found in layers.items():
        if found.empty:
            continue
        name, real = section.value, found[~found["random"].astype(bool)]
        if found.groupby(["task", "curve", "metric", "split"]).ngroups >= MOST_CURVES:
            yield Caveat(f"{name}: only the first {MOST_CURVES} curves were looked at.", [])
        for verdict, part in ((str(v), p) for v, p in real.groupby("verdict", sort=False)):
            if verdict == "no control":
                yield from _caveat(f"{name}: there is no control (shuffled labels) to hold values against.", _of(part))
            elif verdict == "no value":
                yield from _caveat(f"{name}: there is no value (NaN).", _of(part))
            elif verdict == "undetermined":
                yield from _caveat(f"{name}: an estimate is undetermined.", _of(part, said="undetermined"))
            elif verdict == TASK:
                yield from _caveat(f"{name}, not above the control task (labels learned by heart): {TASK}.", _of(part))
            elif verdict != "above noise":
                yield from _caveat(f"{name}, not above shuffled labels: {verdict}.", _of(part))
        alone = real[real["value"].notna() & real["ci_low"].isna()]
        yield from _caveat(f"{name}: values have no interval.", _of(alone))
        if "penalty_at_edge" in real:
            edge = real[real["penalty_at_edge"].fillna(value=False).astype(bool)]
            yield from _caveat(f"{name}: the best penalty lies at the end of those tried; try more.", _of(edge))
    for section, rows in sections.items():
        yield from _of_kind(section, rows)


def _of_kind(section: Section, rows: pd.DataFrame) -> Iterator[Caveat]:
    name, gold = section.value, rows[rows["target"] == "gold"]
    if section in (
        Section.TRAINING,
        Section.PROBES,
        Section.INFORMATION,
        Section.CODES,
        Section.DIFFERENCES,
        Section.SUMMARIES,
    ):
        sizes = gold.groupby(["task", "split"], sort=False)["n"].max().reset_index().to_dict("records")
        few = (f"{shown_task(row['task'])} {row['split']}: n = {row['n']:,}" for row in sizes if row["n"] < FEW)
        yield from _caveat(f"{name}: fewer than {FEW} examples.", few)
    if section is Section.TRAINING:
        kept = trained_rows(rows)
        alone = kept[kept["ci_low"].isna()]
        named = zip(alone["run"], alone["task"], alone["split"], alone["metric"], strict=True)
        yield from _caveat(f"{name}: values have no interval.", (", ".join(filter(None, words)) for words in named))
    if "converged" in gold:
        failed = gold.assign(layer=gold["layer_name"])[~gold["converged"].fillna(value=True).astype(bool)]
        yield from _caveat(f"{name}: a fit did not converge.", _of(failed))
    for column, what in (("warning", "the estimator's own warning."), ("caution", "what so many points can carry.")):
        said = rows[column].astype("string").fillna("") if column in rows else rows["task"][:0]
        yield from _caveat(
            f"{name}: {what}",
            (f"{word} ({count:,} rows)" for word, count in said[said != ""].value_counts(sort=False).items()),
        )
    for column, what in (
        ("seen_in_train", "examples evaluated have a text, near copy or group in train; value_unseen leaves them out."),
        ("unread_words", "words had no piece to tag, and metrics are over the others."),
        ("left_out_dev", "examples without a label were left out of what was evaluated."),
        ("left_out_train", "examples without a label were left out of train."),
    ):
        if column in rows:
            counts = rows.groupby("task", sort=False)[column].max()
            yield from _caveat(
                f"{name}: {what}", (f"{shown_task(str(task))}: {int(n):,}" for task, n in counts.items() if n > 0)
            )
    if "p" in rows and section is Section.DOMAINS:
        alike = gold[(gold["p"] > 0.05) & ~gold["metric"].isin((SIZES, TERMS))]  # p of a term is another number
        yield from _caveat(
            f"{name}: sampling alone gives as much (p > 0.05).",
            (f"{a} and {b}" for a, b in zip(alike["domain_a"], alike["domain_b"], strict=True)),
        )


def _of(rows: pd.DataFrame, said: str = "") -> Iterator[str]:
    """The layers of each curve in a line, with what the rows say in the column ``said``."""
    by = [c for c in ("task", "curve", said) if c in rows]
    texts = rows.assign(**{c: rows[c].astype("string").fillna("") for c in by})
    for key, part in texts.groupby(by, sort=False):
        words = [str(word) for word in key if word != ""]
        layers = [str(layer) for layer in dict.fromkeys(part["layer"]) if str(layer) not in ("", "<NA>")]
        where = f"layer{'s' * (len(layers) > 1)} {_ranges(layers)}" if layers else ""
        yield ", ".join(filter(None, (*words[:2], where))) + (f": {words[2]}" if len(words) > 2 else "")


def _ranges(layers: Sequence[str]) -> str:
    """0, 1, 2, 5 and final_norm as "0–2, 5, final_norm"."""
    runs: list[list[str]] = []
    for layer in layers:
        if runs and layer.isdecimal() and runs[-1][-1].isdecimal() and int(layer) == int(runs[-1][-1]) + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _caveat(what: str, where: Iterable[str]) -> Iterator[Caveat]:
    found = list(islice(where, 10_000))
    if found:
        more = [f"… and {len(found) - MOST:,} more."] if len(found) > MOST else []
        yield Caveat(what, found[:MOST] + more)
