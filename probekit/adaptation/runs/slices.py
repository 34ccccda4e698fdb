"""The metrics of an evaluation on slices of its examples, and which slices are worse than the other examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.runs.constant import constant_rows
from probekit.adaptation.runs.predictions import RESAMPLES, Evaluation
from probekit.adaptation.runs.rows import evaluation_rows
from probekit.metrics import derive, metric
from probekit.statistics.multiplicity import holm
from probekit.statistics.subsets import against_rest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["REST", "slice_rows", "slice_sentences"]

REST, LEVEL = "rest", 0.05
"""The value of ``against`` in rows of differences, and the level of the sentences."""


def slice_rows(
    found: Evaluation, slices: Mapping[str, Set[str]], about: Mapping[str, Any], constant: Mapping[str, Any] | None
) -> Iterator[dict[str, Any]]:
    """Each metric on each slice, as of a task "TASK:SLICE", and the main metric minus that on the other examples.

    The latter rows have ``against`` "rest", the two-sided ``p`` of no difference, and ``p_adjusted``, with Holm's
    correction over the slices. Perplexities have none.

    Parameters
    ----------
    slices : Mapping[str, Set[str]]
        The ids of the examples of each slice, by name.
    about : Mapping[str, Any]
        Columns of all rows; ``task`` is the name of the whole task.
    constant : Mapping[str, Any], optional
        The constant prediction.
    """
    differences = []
    for name, ids in slices.items():
        inside = np.array([str(i) in ids for i in found.ids])
        columns = {**about, "task": f"{about['task']}:{name}", "slice": name}
        part = found.only(np.flatnonzero(inside))
        rows = [row | {"headline": False} for row in evaluation_rows(part, columns)]
        yield from rows
        if constant:
            yield from constant_rows(part, constant, columns)
        if found.losses is None:
            differences.append(rows[0] | {"why": ""} | _difference(found, inside, rows[0]))
    adjusted = holm(np.array([row["p"] for row in differences]))
    yield from (row | {"p_adjusted": p, "correction": "holm"} for row, p in zip(differences, adjusted, strict=True))


def _difference(found: Evaluation, inside: np.ndarray, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the difference from the other examples; no interval if one of the two has none."""
    name = row["metric"]
    columns = {"metric": derive("difference", name), "against": REST}
    none = {"ci_low": np.nan, "ci_high": np.nan, "p": np.nan}
    if inside.all():
        return columns | none | {"value": np.nan, "why": "all examples are in the slice"}
    chosen = np.repeat(inside, [len(one) for one in found.labels])
    one, p = against_rest(chosen, name, resamples=RESAMPLES, **found.table({"step": 0, "seed": 0}).sample())
    why = row.get("why") or found.only(np.flatnonzero(~inside)).interval(name).get("why")
    if why or np.isnan(p):
        return columns | none | {"value": one.value, "why": why or "the metric is the same in all resamples"}
    return columns | {"value": one.value, "ci_low": one.ci_low, "ci_high": one.ci_high, "p": p}


def slice_sentences(rows: pd.DataFrame) -> Iterator[str]:
    """For each task and split a sentence that names the slices that are worse than the other examples.

    They are those whose difference has a p of at most .05 after Holm's correction over the slices.
    """
    if "against" not in rows:
        return
    rows = rows[rows["against"] == REST]
    of = [task.removesuffix(f":{name}") for task, name in zip(rows["task"], rows["slice"], strict=True)]
    for (task, split, name), part in rows.groupby([np.array(of, dtype=object), "split", "metric"], sort=False):
        base = metric(name)
        tested = part[part["p"].notna()]
        worse = tested[(tested["p_adjusted"] <= LEVEL) & (base.sign * tested["value"].astype(float) < 0)]
        family = f"Holm over {len(tested)} slice{'s' * (len(tested) != 1)}"
        listed = [
            f"{row['slice']} ({row['value']:+.4f}, 95 % interval {row['ci_low']:+.4f} to {row['ci_high']:+.4f}, "
            f"{row['n']:,} examples, p {row['p_adjusted']:.2g})"
            for row in worse.to_dict("records")
        ]
        said = (
            f"{base.of} is worse than on the other examples on {', '.join(listed)}; {family}"
            if listed
            else f"no slice is shown to be worse than the other examples ({base.of}; {family})"
        )
        yield f"{task} {split}: {said}"
        for row in part[part["p"].isna()].to_dict("records"):
            yield f"{task} {split}: {row['slice']} is not compared with the other examples: {row['why']}"
