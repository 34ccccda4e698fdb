"""Rows as a small table of numbers: the value beside the layer, and only what tells its rows apart."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from probekit.display import p_value, shown_label
from probekit.grid import Column, Grid
from probekit.rows.schema import KEYS, called, layer_labels

if TYPE_CHECKING:
    import pandas as pd

JOINT = ("joint_low", "joint_high")
"""The ends of the interval that holds for all layers of a curve at once."""
TESTS = ("p_adjusted", "p")
STATE = ("model", "checkpoint", "step", "regime", "head", "variant", "random_weights", "run_seed", "trained_on")
"""The columns of rows that say which model it is; its name says as many of them as :func:`called` does."""
NAMED = (*KEYS, "layer_b", "label", "example", "domain_a", "domain_b", "against", "prefer")
"""Columns that may tell rows apart, the first ones first; further columns of an analysis follow."""


def main_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The measured values: on gold labels, without single draws; without differences, unless there is nothing else."""
    from probekit.metrics import DERIVED

    gold = rows[(rows["target"] == "gold") & rows["draw"].isna()]
    plain = gold[~gold["metric"].str.split("(").str[0].isin(DERIVED)]
    return plain if len(plain) else gold if len(gold) else rows


def tidy(rows: pd.DataFrame, *, joint: bool = False) -> pd.DataFrame:
    """One row for each measured value: layer, value, interval and p first, then what tells them apart, model and task.

    Parameters
    ----------
    rows : DataFrame
        Rows; each becomes one of the table.
    joint : bool, default False
        Whether the interval is that for all layers at once, in columns of its own, where the rows have it.
    """
    import pandas as pd

    p = [c for c in TESTS if c in rows and rows[c].notna().any()][:1]
    ends = (*JOINT, "ci_low", "ci_high") if joint and JOINT[0] in rows else ("ci_low", "ci_high")
    if joint and JOINT[0] in rows:
        rows = rows.assign(**{end: rows[end].where(rows[JOINT[0]].isna()) for end in ("ci_low", "ci_high")})
    numbers = ["value", *(c for c in ends if rows[c].notna().any()), *p, "metric"]
    first = {"layer": layer_labels(rows)} if (rows["site"] != "").any() else {}
    first |= {c: rows[c] for c in numbers}
    if rows["representation"].nunique() > 1:  # baselines beside layers
        first["representation"] = rows["representation"]
    last: dict[str, Any] = {"model": models(rows)}
    if "model_b" in rows:
        last["model_b"] = models(second(rows))
    last["task"] = rows["task"]
    rows = rows.assign(layer_b=layer_b(rows)) if "layer_b" in rows else rows
    table = pd.DataFrame({**first, **_apart(rows, {"layer": "", **first, **last}), **last}, index=rows.index)
    order = {name: i for i, name in enumerate(dict.fromkeys(rows["metric"]))}
    return table.iloc[rows["metric"].map(order).argsort(kind="stable")].reset_index(drop=True)


def _apart(rows: pd.DataFrame, known: dict[str, Any]) -> dict[str, pd.Series]:
    """As few further columns as tell rows apart, in the order of ``NAMED``; a model's state only as far as needed."""
    import pandas as pd

    found: dict[str, pd.Series] = {}
    base = pd.DataFrame(
        {c: known[c] for c in ("layer", "metric", "representation", "model", "model_b", "task") if c in known}
    )
    codes = base.set_axis(rows.index).groupby([*base], sort=False, dropna=False).ngroup()
    for c in dict.fromkeys((*NAMED, *rows.columns.drop("n"), "n")):
        if codes.nunique() == len(rows):
            break
        if c in known or c not in rows or rows[c].dtype.kind == "f":
            continue
        finer = rows.assign(codes=codes).groupby(["codes", rows[c].astype("string")], sort=False, dropna=False).ngroup()
        if finer.nunique() > codes.nunique():
            codes, found[c] = finer, rows[c]
    return found


def models(rows: pd.DataFrame) -> list[str]:
    """The name of each row's model; the full one of two that have the same short name."""
    columns = [c for c in STATE if c in rows]
    codes = rows.groupby(columns, sort=False, dropna=False).ngroup()
    firsts = rows.loc[~codes.duplicated(), columns].to_dict("records")
    full = [called({**first, "representation": ""}) for first in firsts]
    names = {name: shown_label(name) for name in full}
    shown = Counter(names.values())
    return [names[full[code]] if shown[names[full[code]]] == 1 else full[code] for code in codes]


def second(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns of the other models of pairs, named as those of the first."""
    found = rows[[f"{c}_b" for c in STATE if f"{c}_b" in rows]]
    return found.rename(columns=lambda c: str(c).removesuffix("_b"))


def layer_b(rows: pd.DataFrame) -> pd.Series:
    """Display names of the other layers of pairs."""
    return layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"]))


def best_rows(rows: pd.DataFrame, curve: tuple[str, ...]) -> pd.DataFrame:
    """The best layer of each curve.

    Parameters
    ----------
    rows : DataFrame
        Rows of analyses of layers.
    curve : tuple of str
        The columns that tell curves apart.
    """
    import pandas as pd

    from probekit.metrics import metric

    gold = main_rows(rows[(rows["site"] != "") & rows["value"].notna() & (rows["target"] == "gold")])
    found = []
    for _, one in gold.groupby([c for c in curve if c in gold], sort=False, dropna=False):
        if (known := metric(str(one["metric"].iloc[0]))).better:
            found.append(one.iloc[[known.best(one["value"].to_numpy(dtype=float))]])
    return pd.concat(found, ignore_index=True) if found else gold.iloc[:0].copy()


def as_grid(table: pd.DataFrame, rows: int, of: int) -> tuple[Grid, list[str]]:
    """A tidy table as text, and a line that says what it leaves out.

    Parameters
    ----------
    table : DataFrame
        Some rows of :func:`tidy`.
    rows, of : int
        How many that table has, and how many rows the result has.
    """
    numbers = {str(c): table[c].dtype.kind == "f" for c in table}
    columns = [Column(c, "right" if number else "left", key=c == "layer") for c, number in numbers.items()]

    def cell(value: Any, name: str) -> str:
        text = p_value(value) if name in TESTS else f"{value:.3f}" if numbers[name] else str(value)
        return "" if text in ("nan", "<NA>", "None") else text

    lines = [[cell(value, name) for value, name in zip(row, numbers, strict=True)] for row in table.to_numpy()]
    left_out = rows > len(table)
    more = f"{len(table)} of {rows:,} values; result.table() has all of them, result.rows all {of:,} rows."
    return Grid(columns, lines), [more] * left_out
