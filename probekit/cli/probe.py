"""``probekit probe``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import VectorOptions
from probekit.cli.curves import run_and_show
from probekit.cli.show import say
from probekit.cli.terminal import show_table
from probekit.display import shown_label
from probekit.errors import UsageError
from probekit.grid import Column, Format, Grid
from probekit.probes.protocol.options import ProbeOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["probe"]

NOISE = {"null_mean": "permuted", "p_adjusted": "p adjusted"}
"""What permuted labels reach with the same predictions, and the test against them: the columns and their names."""


def probe(
    train: str,
    dev: str,
    /,
    *more: str,
    metrics: tuple[str, ...] | None = None,
    task: str | None = None,
    data_dir: str | None = None,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[ProbeOptions, Parameter(name="*")] = ProbeOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Fit a diagnostic classifier on each layer of TRAIN.h5 and evaluate it on DEV.h5, with controls.

    Features are standardised on train, the penalty is chosen by cross-validation within train, the classifier (ridge
    regression for numeric labels) is refitted on all of train and evaluated once on dev. Controls: shuffled labels, and
    for word-level tasks random labels by word type. Baselines: a bag of word pieces and the length of the text. Further
    pairs of caches (for example, of the same model with random weights) add to the same rows. Two quoted patterns stand
    for all pairs that they match, in the order of their steps.

    Examples:

        probekit probe cola.train.h5 cola.dev.h5 --out cola.parquet

        probekit probe cola.train.h5 cola.dev.h5 random.train.h5 random.dev.h5 --out cola.parquet

        probekit probe sst2.train.h5 sst2.dev.h5 --pooling first --penalties 0.001,0.01,0.1,1,10

        probekit probe pos.train.h5 pos.dev.h5 --estimator mlp --controls 1

        probekit probe chunks.train.h5 chunks.test.h5 --span mean

        probekit probe ud.train.h5 ud.dev.h5 --task ud-relations --data-dir UD_English-EWT

        probekit probe 'data_cache/cola.train.*step-*' 'data_cache/cola.dev.*step-*' --out trajectory.parquet

    Parameters
    ----------
    train
        The cache to fit on, or a quoted pattern.
    dev
        The cache to evaluate on, or a quoted pattern.
    more
        Further pairs.
    metrics
        Metrics, separated by commas, the main one first; by default those of the task.
    task
        For caches of the sentences of several tasks (--task A+B): the task to take labels from.
    data_dir
        Folder of the task's files.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) and the predictions on each example
        (.examples.parquet) next to them.
    """
    import probekit

    caches = (train, dev, *more)
    if len(caches) % 2:
        raise UsageError(f"expected pairs of caches, TRAIN.h5 DEV.h5, but got {len(caches)}.")
    paths = [path for pair in zip(caches[::2], caches[1::2], strict=True) for path in _pairs(*pair)]
    run_and_show(
        probekit.probe, *paths, show=lambda curve: _show(curve, options.level), format_=format_,
        metrics=metrics, task=task, data_dir=data_dir, vectors=vectors, options=options, out=out,
    )  # fmt: skip


def _pairs(train: str, dev: str) -> Iterator[str]:
    """TRAIN, DEV, TRAIN, DEV … from the matches of two patterns, in natural order."""
    from probekit.cli.patterns import expand

    trains, devs = expand(train), expand(dev)
    if len(trains) != len(devs):
        raise UsageError(
            f"{train} matches {len(trains)} caches, but {dev} matches {len(devs)}; the numbers must agree."
        )
    for pair in zip(trains, devs, strict=True):
        yield from pair


def _show(rows: pd.DataFrame, level: float) -> None:
    """A table by layer on standard output: gold labels with intervals, and the controls beside them."""
    from probekit.rows import called, layer_labels

    rows = rows[rows["draw"].isna()]
    head = rows.iloc[-1]
    constant = rows["estimator"].isin(("majority", "mean")) & (rows["metric"] != "v-information")
    names = list(rows.loc[constant, "metric"].unique())
    controls, tested = _beside(rows, names), bool(set(NOISE) <= set(rows) and rows["p_adjusted"].notna().any())
    columns = [Column("layer", key=True)]
    for name in names:
        columns.append(Column(name))
        if name == names[0]:
            columns.append(Column(f"{100 * level:g} % interval", align="center", dim=True))
            columns += [Column(NOISE[c], dim=True) for c in NOISE if tested]
        columns += [Column(control, dim=True) for control in controls[name]]
    columns.append(Column("penalty", label=True))
    best = _best(rows, names)
    lines, bold = [], set()
    for i, (key, part) in enumerate(rows.groupby([layer_labels(rows), "representation", "estimator"], sort=False)):
        layer, representation, estimator = map(str, key)
        label = layer or (estimator if representation in ("none", "word-type") else representation)
        lines.append([label, *_cells(part, names, controls, tested=tested)])
        bold |= {(i, _at(columns, name)) for name in names if layer and _value(part, name) == best.get(name)}
    title = f"{head['task']} {head['split']}, {shown_label(called(rows[rows['site'] != ''].iloc[0]))}"
    title += f": {head['n']:,} evaluated, {head['n_train']:,} fitted"
    show_table(Grid(columns, lines, title, bold))
    of_layers = rows[(rows["site"] != "") & (rows["target"] == "gold") & (rows["metric"] == names[0])]
    if (its := of_layers[of_layers["value"] == best.get(names[0])])["joint_low"].notna().any():
        layer, low, high = layer_labels(its).iloc[0], its["joint_low"].iloc[0], its["joint_high"].iloc[0]
        say(f"best layer {layer}: simultaneous interval over all layers of its {names[0]}: {low:.3f} – {high:.3f}.")
    for text in dict.fromkeys(of_layers["why"].dropna() if "why" in rows else ()):
        if text:
            say(f"some layers have no interval: {text}.")
    if left_out := [f"{head[c]:,} in {c[9:]}" for c in ("left_out_train", "left_out_dev") if head[c]]:
        say(f"unlabelled, left out: {', '.join(left_out)}")


def _best(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, float]:
    """The best value of each metric over the layers."""
    from probekit.metrics import metric

    of_layers = rows[(rows["site"] != "") & (rows["target"] == "gold") & rows["value"].notna()]
    values = {name: of_layers.loc[of_layers["metric"] == name, "value"].to_numpy() for name in names}
    return {name: by_layer[metric(name).best(by_layer)] for name, by_layer in values.items() if len(by_layer)}


def _beside(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, list[str]]:
    """The controls shown with each metric: all with the first; if it counts spans, control tasks with accuracy."""
    from probekit.metrics import metric

    accuracy = "token-accuracy" if metric(names[0]).spans else names[0]
    shown = {"shuffled": names[0], "control-task": accuracy}
    there = set(rows["target"])
    return {name: [control for control, at in shown.items() if at == name and control in there] for name in names}


def _at(columns: Sequence[Column], name: str) -> int:
    return next(i for i, column in enumerate(columns) if column.name == name)


def _value(part: pd.DataFrame, name: str) -> float:
    """A metric of one layer on the gold labels."""
    return float(part.loc[(part["target"] == "gold") & (part["metric"] == name), "value"].iloc[0])


def _cells(
    part: pd.DataFrame, names: Sequence[str], controls: Mapping[str, Sequence[str]], *, tested: bool
) -> list[str]:
    """The cells of one layer: each metric with its controls, interval, permuted labels and p of the first, penalty."""
    gold, cells = part[part["target"] == "gold"], []
    for name in names:
        value, low, high = map(float, gold.loc[gold["metric"] == name, ["value", "ci_low", "ci_high"]].iloc[0])
        cells.append(f"{value:.3f}")
        if name == names[0]:
            cells.append(f"{low:.3f} – {high:.3f}" if isfinite(low) else "")
            numbers = list(gold.loc[gold["metric"] == name, list(NOISE)].iloc[0]) if tested else []
            cells += ["" if number != number else f"{number:.3f}" for number in numbers]
        for control in controls[name]:
            control_value = part[(part["target"] == control) & (part["metric"] == name)]["value"]
            cells.append("" if control_value.empty else f"{control_value.iloc[0]:.3f}")
    first = gold.iloc[0]
    mark = " (edge)" * int(first["penalty_at_edge"]) + " not converged" * (not part["converged"].all())
    return [*cells, "" if first["penalty"] != first["penalty"] else f"{first['penalty']:g}{mark}"]
