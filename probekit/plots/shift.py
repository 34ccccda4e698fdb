"""Probes of one data set on others: heat maps of a metric of one layer by training and evaluated data set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import listed, metrics_of, widest
from probekit.plots.crossed import Crossed, crossed_maps
from probekit.plots.curves import check_metric, last_parts, of_one
from probekit.plots.look import Look, one_line
from probekit.plots.options import FigureKind, PlotOptions

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

DIFFERS = "differs from the diagonal of its column (corrected p ≤ {:g})"
CELLS = ("name", "estimator", "trained_on", "task")


def shift_values(rows: Any, metric: str | None = None, layer: str | None = None) -> pd.DataFrame:
    """Return the values that :func:`shift_panels` draws, a row for each cell.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.shift`.
    metric : str, optional
        By default "auroc", with more than two classes "accuracy".
    layer : str, optional
        By default, for each model, the layer with the highest mean diagonal of the default metric on the evaluated
        examples, over estimators. Random weights are drawn at the layer of the trained ones.

    Returns
    -------
    DataFrame
        The rows of the metric, with columns ``name`` (the model), ``p_difference`` (p of the difference to the diagonal
        of the column, corrected; NaN on the diagonal and for a metric without such a test) and ``chosen`` (whether the
        layer was chosen by its diagonal).

    Raises
    ------
    UsageError
        For rows of other analyses, an unknown metric or layer, and two values for one cell.
    """
    rows = of_one(rows, "shift", "the rows have no probes of one data set on others; give those of probekit shift.")
    rows = rows[rows["target"] == "gold"]
    distinct = [c for c in ("model", "run", "step", "representation") if c == "model" or rows[c].nunique() > 1]
    rows = rows.assign(
        name=[_joined(row) for row in rows.assign(model=last_parts(rows["model"]))[distinct].to_dict("records")]
    )
    plain = [name for name in rows["metric"].unique() if not metric_called(name).derived]
    main = "auroc" if "auroc" in plain else "accuracy"
    metric = metric or main
    check_metric(metric, plain)
    found = rows[rows["metric"] == metric]
    known = list(found["layer_name"].unique())
    if layer is not None and layer not in known:
        raise UsageError(f"the rows have no layer {layer!r}; they have {', '.join(known)}.")
    diagonal = rows[(rows["metric"] == main) & (rows["trained_on"] == rows["task"])]
    best = {model: layer or _best(of) for model, of in diagonal.groupby("model", sort=False)}
    found = found[found["layer_name"] == found["model"].map(best)]
    if (twice := found.duplicated([*CELLS])).any():
        row = found[twice].iloc[0]
        raise UsageError(
            f"the probe of {row['trained_on']} on {row['task']} has two values in {row['name']}; were the rows given "
            "twice, or with two seeds?"
        )
    lost = rows[rows["metric"] == f"difference({metric})"].set_index(["layer_name", *CELLS])["p_adjusted"]
    p = lost.reindex(found[["layer_name", *CELLS]]).to_numpy(dtype=float)
    return found.assign(p_difference=p, chosen=layer is None and len(known) > 1).reset_index(drop=True)


def _joined(row: Mapping[Any, Any]) -> str:
    words = {c: "" if str(value) in ("<NA>", "nan") else str(value) for c, value in row.items()}
    return ", ".join(f"step {word}" if c == "step" else word for c, word in words.items() if word)


def _best(diagonal: pd.DataFrame) -> str:
    """The layer of one model with the highest mean, of trained weights if there are any."""
    trained = diagonal if diagonal["random"].all() else diagonal[~diagonal["random"]]
    mean = trained.groupby("layer_name", sort=False)["value"].mean()
    return str(mean.index[0] if mean.isna().all() else mean.idxmax())


def shift_panels(
    rows: Any,
    *,
    metric: str | None = None,
    layer: str | None = None,
    level: float = 0.05,
    columns: int = 2,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Plot probes of one data set on others: a heat map for each model and probe, at one layer.

    A frame marks a cell that differs from the diagonal of its column, a probe of the same data set (p <= 0.05, paired,
    corrected). probekit plot layers draws the same rows by layer, a curve for each data set that probes were fitted on.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit shift wrote (.parquet, .csv).
    metric, layer : str, optional
        As in :func:`shift_values`.
    level : float
        Threshold for the corrected p-values.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw a heat map for each model and probe: the data set it was fitted on by the one it is evaluated on.

    A cell has a frame where it is shown to differ from the diagonal of its column: p, paired and corrected, is at most
    ``level``.

    Examples
    --------
    On the command line::

        probekit plot shift shift.parquet --out shift.pdf
        probekit plot shift shift.parquet --metric recall-at-rate --layer 6
        probekit plot layers shift.parquet --metric auroc
    """
    values, look = shift_values(rows, metric, layer), look or Look()
    sets = list(dict.fromkeys([*values["task"], *values["trained_on"]]))
    names, same = _apart([look.task(name) for name in sets])
    maps, by = list[Crossed](), list[str]()
    for _, part in values.groupby(["name", "estimator"], sort=False):
        head, differs = part.iloc[0], part[part["p_difference"] <= level]
        table = part.pivot_table("value", "trained_on", "task", dropna=False).reindex(index=sets, columns=sets)
        framed = [(sets.index(a), sets.index(b)) for a, b in zip(differs["trained_on"], differs["task"], strict=True)]
        by.append(f"{look.shown(str(head['estimator']))} probe, layer {head['layer_name']}")
        maps.append(Crossed(look.shown(str(head["name"])), table.set_axis(names).set_axis(names, axis=1), framed))
    metric = str(values["metric"].iloc[0])
    title = one_line(metric)
    if len(set(by)) == 1:
        title = f"{title}, {by[0]}"
    else:
        maps = [replace(one, title=f"{one.title}\n{how}") for one, how in zip(maps, by, strict=True)]
    scale: dict[str, Any] = {"limits": (0, 1), "columns": columns, "width": width, "look": look, "shared": same}
    if metric == "auroc":  # white at chance, blue where the probe is reversed
        scale["centre"] = 0.5
    return crossed_maps(maps, metric, title, DIFFERS.format(level), **scale)


def _apart(names: list[str]) -> tuple[list[str], str]:
    """Names of data sets without a first word that all share, and this word: "Truth: cities" is "cities"."""
    found = [re.fullmatch(r"(\w+)(?:: |-)(.+)", name) for name in names]
    words = {match and match[1] for match in found}
    if len(names) < 2 or len(words) > 1 or found[0] is None:
        return names, ""
    return [match[2] for match in found if match], found[0][1]


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    values = shift_values(rows, options.metric, options.layer)
    sizes = {look.task(str(task)): f"{listed(of['split'].unique())}, n = {of['n'].max():,}" for task, of in
             values.groupby("task", sort=False)}  # fmt: skip
    yield f"{metrics_of(values)} ({_each(sizes)}). Lines: data sets of training; columns: of evaluation."
    counts = {look.task(str(row["trained_on"])): f"{row['n_train']:,}" for row in values.to_dict("records")}
    yield f"Examples of training: {_each(counts)}."
    layers = dict(zip(last_parts(values["model"]), values["layer_name"], strict=True))
    if values["chosen"].any():
        best = "; ".join(f"{look.shown(model)}: layer {layer}" for model, layer in layers.items())
        main = one_line("auroc" if (rows["metric"] == "auroc").any() else "accuracy")
        yield f"The layer with the highest mean {main} of the diagonal, on the evaluated examples ({best})."
    yield from widest(values, look)
    if "rate" in values and values["rate"].notna().any():
        yield f"At {100 * values['rate'].max():g} % false positives in train; on other data they may be more or fewer."
    if values["p_difference"].notna().any():
        yield (
            "Framed cells differ from the diagonal of their column "
            f"(p of at most {options.level:g}; paired, with the choice of training examples, corrected by Holm)."
        )
    if values["metric"].eq("auroc").all():
        yield "0.5 is chance; below it the probe is reversed."
    if values["value"].isna().any():
        yield "Empty cells: no value; the column why of the rows says the reason."


def _each(facts: Mapping[str, str]) -> str:
    """A fact for each data set, once if it is the same for all: "dev, n = 400 in each data set"."""
    same = set(facts.values())
    if len(same) == 1 and len(facts) > 1:
        return f"{same.pop()} in each data set"
    return "; ".join(f"{name}, {fact}" for name, fact in facts.items())


def by_training_set(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a curve by layer for each data set that probes were fitted on."""
    from probekit.tasks.load import shown_task

    return rows.assign(method=rows["estimator"] + ", trained on " + rows["trained_on"].map(shown_task))


FIGURE = FigureKind(
    head="Probes of one data set evaluated on others.",
    draw=shift_panels,
    caption=caption,
    metric="Metric of the cells, such as accuracy or recall-at-rate; by default auroc.",
)
