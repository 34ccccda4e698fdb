"""Caveats that a reader of a page must know, found in rows and cards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING

from probekit.metrics import metric as metric_called
from probekit.plots.domain_sizes import SIZES
from probekit.plots.domains import TERMS
from probekit.plots.noise import REACHES_CONTROL
from probekit.report.curves import MOST_CURVES
from probekit.report.sections import TITLES, TRAINING, is_by_layer
from probekit.report.summary import trained_rows
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd

    from probekit.report.studies import Source

FEW = 100
"""Number of examples below which the interval of an accuracy near 1/2 is wider than 10 points on either side."""
DECIMAL = re.compile(r"(\d+\.\d+)")
MOST = 30
"""Lines of one caveat, at most."""
VERSIONS = ("probekit", "torch", "transformers", "numpy", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Caveat:
    """``what`` is a sentence about the problem; ``where`` lists at most :data:`MOST` places."""

    what: str
    where: list[str]


def of_sources(sources: Sequence[Source]) -> Iterator[Caveat]:
    """Missing cards and cards of other rows, changed code, different versions, files without rows."""
    yield from _caveat("These files contain no rows.", (str(s.path) for s in sources if s.rows.empty))
    yield from _caveat("The origin of these rows is unknown.", (f"{s.path}: {s.doubt}" for s in sources if s.doubt))
    revision = {str(s.path): s.card.get("git") for s in sources if s.card}
    yield from _caveat(
        "These rows were computed with uncommitted changes to the code, so the revision does not identify it.",
        _some([name for name, git in revision.items() if str(git).endswith("-dirty")], sources),
    )
    yield from _caveat(
        "The revision of the code is unknown, only the version of probekit is known.",
        _some([name for name, git in revision.items() if not git], sources),
    )
    notes = [noted for source in sources if isinstance(noted := source.card.get("notes"), list)]
    told = [note for noted in notes for note in noted if isinstance(note, str)]
    yield from _caveat("The analyses say of their data:", dict.fromkeys(told))
    for package in VERSIONS:
        found: dict[str, list[str]] = {}
        for source in sources:
            versions = source.card.get("versions")
            if isinstance(versions, Mapping) and package in versions:
                found.setdefault(str(versions[package]), []).append(source.path.name)
        if len(found) > 1:
            yield from _caveat(
                f"The files were computed with different versions of {package}.",
                (f"{version}: {', '.join(_some(names, sources))}" for version, names in found.items()),
            )


def _some(names: list[str], sources: Sequence[Source]) -> list[str]:
    """The names of files, or only their number if it is all of many."""
    return [f"all {len(names):,} files"] if len(names) == len(sources) > 3 else names


def of_rows(sections: Mapping[str, pd.DataFrame], layers: Mapping[str, pd.DataFrame]) -> Iterator[Caveat]:
    """Noise, missing controls and intervals, few examples, warnings of estimators."""
    for section, found in layers.items():
        if found.empty:
            continue
        name, real = TITLES[section], found[~found["random"].astype(bool)]
        if found.groupby(["task", "curve", "metric", "split"]).ngroups >= MOST_CURVES:
            yield Caveat(f"{name}: only the first {MOST_CURVES} curves are included.", [])
        for verdict, part in ((str(v), p) for v, p in real.groupby("verdict", sort=False)):
            if verdict == "no control":
                what = "there is no control (permuted or shuffled labels) to compare with."
                yield from _caveat(f"{name}: {what}", _of(part))
            elif verdict == "no value":
                yield from _caveat(f"{name}: the value is missing (NaN).", _of(part))
            elif verdict == "undetermined":
                yield from _caveat(f"{name}: the estimate is undetermined.", _of(part, reason="undetermined"))
            elif verdict == REACHES_CONTROL:
                yield from _caveat(
                    f"{name}, not above the control task (possibly memorised): {REACHES_CONTROL}.", _of(part)
                )
            elif verdict != "above noise":
                yield from _caveat(f"{name}, {verdict}.", _of(part))
        without_interval = real[real["value"].notna() & real["ci_low"].isna()]
        yield from _caveat(f"{name}: values have no interval.", _of(without_interval, reason="why"))
        if "penalty_at_edge" in real:
            edge = real[real["penalty_at_edge"].fillna(value=False).astype(bool)]
            yield from _caveat(f"{name}: the best penalty is at the end of the grid; extend the grid.", _of(edge))
    same: dict[tuple[str, ...], list[str]] = {}
    for section, rows in sections.items():
        for caveat in _of_kind(section, rows):
            what = caveat.what.removeprefix(f"{TITLES[section]}: ")
            same.setdefault((what, *caveat.where), []).append(TITLES[section])
    for (what, *where), names in same.items():
        yield Caveat(f"{', '.join(names)}: {what}", where)


def _of_kind(section: str, rows: pd.DataFrame) -> Iterator[Caveat]:
    name, gold = TITLES[section], rows[rows["target"] == "gold"]
    if section in (TRAINING, "compare", "summary") or is_by_layer(section):
        sizes = gold.groupby(["task", "split"], sort=False)["n"].max().reset_index().to_dict("records")
        few = (f"{shown_task(row['task'])} {row['split']}: n = {row['n']:,}" for row in sizes if row["n"] < FEW)
        yield from _caveat(f"{name}: fewer than {FEW} examples.", few)
    if section == TRAINING:
        kept = trained_rows(rows)
        without_interval = kept[kept["ci_low"].isna()]
        named = zip(*(without_interval[column] for column in ("run", "task", "split", "metric")), strict=True)
        yield from _caveat(f"{name}: values have no interval.", (", ".join(filter(None, words)) for words in named))
        yield from _caveat(f"{name}: worse than the constant prediction.", _not_better(rows, worse=True))
        yield from _caveat(
            f"{name}: not shown to be better than the constant prediction.", _not_better(rows, worse=False)
        )
    if "converged" in gold:
        failed = gold.assign(layer=gold["layer_name"])[~gold["converged"].fillna(value=True).astype(bool)]
        yield from _caveat(f"{name}: a fit did not converge.", _of(failed))
    of_warnings = "warnings." if section == "compare" else "warnings of the estimator."
    for column, what in (("warning", of_warnings), ("caution", "limits of so few points.")):
        texts = rows[column].astype("string").fillna("") if column in rows else rows["task"][:0]
        yield from _caveat(f"{name}: {what}", _merged(texts[texts != ""]))
    for column, what in (
        (
            "seen_in_train",
            "evaluated examples have an equal text, near copy or group in train; value_unseen excludes them.",
        ),
        ("unread_words", "words without a piece are not evaluated."),
        ("left_out_dev", "examples without a label are excluded from evaluation."),
        ("left_out_train", "examples without a label are excluded from train."),
    ):
        if column in rows:
            counts = rows.groupby("task", sort=False)[column].max()
            yield from _caveat(
                f"{name}: {what}", (f"{shown_task(str(task))}: {int(n):,}" for task, n in counts.items() if n > 0)
            )
    if "p" in rows and section == "domains":
        alike = gold[(gold["p"] > 0.05) & ~gold["metric"].isin((SIZES, TERMS))]  # p of a term means something else
        yield from _caveat(
            f"{name}: no larger than sampling noise (p > 0.05).",
            (f"{a} and {b}" for a, b in zip(alike["domain_a"], alike["domain_b"], strict=True)),
        )


def _merged(texts: Iterable[str]) -> Iterator[str]:
    """Each part of the warnings once, with the number of its rows; decimal numbers that differ become a range.

    Parts that the same rows have stay together.
    """
    found: dict[tuple[str, ...], dict[int, list[str]]] = {}
    for i, text in enumerate(texts):
        for part in text.split("; "):
            words = DECIMAL.split(part)
            found.setdefault(tuple(words[::2]), {})[i] = words[1::2]
    together: dict[tuple[int, ...], list[str]] = {}
    for form, by_row in found.items():
        ends = [(min(values, key=float), max(values, key=float)) for values in zip(*by_row.values(), strict=True)]
        ranges = [low if low == high else f"{low}–{high}" for low, high in ends]
        part = "".join(chain.from_iterable(zip_longest(form, ranges, fillvalue="")))
        together.setdefault(tuple(by_row), []).append(part)
    for where, parts in together.items():
        yield f"{'; '.join(parts)} ({len(where):,} row{'s' * (len(where) != 1)})"


def _not_better(rows: pd.DataFrame, *, worse: bool) -> Iterator[str]:
    """Runs whose main metric has an interval with the constant prediction in it, or above it if ``worse``."""
    by = ["file", "checkpoint", "task", "split", "metric"]
    by = [column for column in by if column in rows]
    constant = rows[rows["estimator"].isin(("majority", "mean"))].set_index(by)["value"].to_dict()
    main = rows["headline"].fillna(value=False).astype(bool) if "headline" in rows else [False] * len(rows)
    for row in rows[main].to_dict("records"):
        known, sign = constant.get(tuple(row[column] for column in by)), metric_called(row["metric"]).sign
        if known is None or not sign:
            continue
        low, high = (row["ci_low"], row["ci_high"]) if sign > 0 else (row["ci_high"], row["ci_low"])
        below = sign * high < sign * known
        if not sign * low > sign * known and worse == below:  # not better also for NaN, because there is no interval
            yield (
                f"{row['checkpoint']}, {shown_task(row['task'])} {row['split']}: {row['metric']} {row['value']:.3f} "
                f"[{row['ci_low']:.3f}, {row['ci_high']:.3f}], constant {known:.3f}"
            )


def _of(rows: pd.DataFrame, reason: str = "") -> Iterator[str]:
    """The layers of each curve in a line, with the text in the column ``reason``."""
    by = [c for c in ("task", "curve", reason) if c in rows]
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
