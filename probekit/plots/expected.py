"""Expected validation performance: the dev metric of the best of n trials of a search (Dodge et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError
from probekit.metrics import within
from probekit.plots.caption import by_task, listed, metrics_of
from probekit.plots.curves import last_parts, of_one
from probekit.plots.heat import heat_panels, heat_words
from probekit.plots.legends import CURVES, band_key
from probekit.plots.look import COLOURS, INK, MARKERS, MOST, Look, metric_title
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import dress, panels, width_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SETTING = ("regime", "head", "variant", "drawn")


def expected_values(rows: Any) -> pd.DataFrame:
    """Return the values that :func:`expected_panels` draws, with the name of each curve in ``label``.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.search`.

    Returns
    -------
    DataFrame
        The expected dev metric of the best of n trials: n in ``trials``, standard deviation in ``sd``. A curve is a
        model, with what else differs between the searches: regime, head, variant, or how settings were drawn.

    Raises
    ------
    UsageError
        If the rows contain none, or two searches cannot be told apart.
    """
    lacking = "the rows contain no searches; give SEARCH/rows.parquet, which probekit search writes."
    rows = of_one(rows, "expected-performance", lacking)
    label = last_parts(rows["model"])
    for column in SETTING:
        if rows.groupby("task")[column].nunique().max() > 1:
            label = label + ", " + rows[column].astype(str)
    found = rows.assign(label=label).sort_values(["task", "label", "trials"], kind="stable")
    if (twice := found.duplicated(["task", "label", "trials"])).any():
        raise UsageError(
            f"two searches have the same name in the figure, {found[twice].iloc[0]['label']} on "
            f"{found[twice].iloc[0]['task']}; give one of them, or set variant in one of the spaces."
        )
    return found


def expected_panels(rows: Any, *, columns: int = 4, width: float | None = None, look: Look | None = None) -> Figure:
    """Plot the expected dev metric of the best of n trials of a search (Dodge et al. 2019): one panel per task.

    Bands are one standard deviation of the best of n trials. The expectation holds for settings that are drawn
    independently: probekit search --sampler random.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of searches (.parquet, .csv).
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw the expected dev metric of the best of n trials: a panel for each task, a curve for each search.

    Bands are one standard deviation of the best of n, not an interval of the expectation; they end at the best trial.

    Examples
    --------
    On the command line::

        probekit search mine.toml --sampler random --trials 30 --out searches/mine
        probekit plot expected searches/*/rows.parquet --out expected.pdf
    """
    from matplotlib.ticker import MaxNLocator

    values = expected_values(rows)
    if values.groupby("task")["label"].nunique().max() > MOST:
        labels = values["label"].unique()
        return heat_panels(values, labels, _cells, columns=columns, width=width, look=look, by=None, xlabel="Trials")
    figure, drawn = panels(values, columns, 2.4, width=width, look=look, keys=band_key("bands: one standard deviation"))
    styles = dict(zip(values["label"].unique(), cycle(zip(COLOURS, MARKERS, strict=False)), strict=False))
    for ax, part in drawn:
        for label, (colour, marker) in styles.items():
            curve = part[part["label"] == label]
            if curve.empty:
                continue
            n, mean, sd = (curve[key].to_numpy(dtype=float) for key in ("trials", "value", "sd"))
            best = curve["unbiased"].to_numpy(dtype=float)[-1]  # the best of all trials
            up, down = mean + sd, mean - sd
            up, down = (up.clip(max=best), down) if best >= mean[0] else (up, down.clip(min=best))
            ax.fill_between(n, down, up, color=colour, alpha=0.15, linewidth=0)
            every = max(1, len(n) // 10)
            ax.plot(n, mean, color=colour, marker=marker, markersize=4, markevery=every, label=label, zorder=CURVES)
        dress(ax, part, ylabel=f"Expected {within(metric_title(str(part['metric'].iloc[0])))}", look=look)
        ax.set_xlabel("Trials", fontsize=9, color=INK)
        last = int(part["trials"].max())
        at = MaxNLocator(nbins=max(2, int(3 * width_of(ax)) - 1), integer=True).tick_values(1, last)
        ax.set_xticks([1, *(n for n in at if 1 + 0.6 * (at[1] - at[0]) <= n <= last)])  # not 0 trials
    return figure


def _cells(values: pd.DataFrame) -> pd.DataFrame:
    """The values of some numbers of trials as cells."""
    most = int(values["trials"].max())
    some = values[values["trials"].isin([n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if n < most] + [most])]
    return some.assign(layer=some["trials"], layer_name=some["trials"].map("{:,}".format))


def caption(rows: pd.DataFrame, _options: PlotOptions, look: Look) -> Iterator[str]:
    values = expected_values(rows)
    yield f"{metrics_of(values)}."
    yield from by_task(values, look)
    crowd = values.groupby("task")["label"].nunique().max() > MOST
    if crowd:
        yield from heat_words(_cells(values))
    bands = "" if crowd else "; bands: one standard deviation of the best of n trials"
    yield (
        f"Expectation with replacement (Dodge et al. 2019){bands}. The best trial is chosen on the same dev examples."
    )
    if drawn := sorted({*values["drawn"]} - {"random"}):
        yield f"Settings drawn by {listed(drawn)}, which are not independent as the estimate assumes."


FIGURE = FigureKind(
    head="Expected dev metric of the best of n trials of a search.",
    draw=expected_panels,
    caption=caption,
    of_rows=("models", "variants"),
)
