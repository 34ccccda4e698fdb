"""A suggested caption of a figure, made from its rows: what is drawn of how many examples, and what intervals are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.files import MARK, FileKind, is_sealed, write
from probekit.metrics import metric as metric_called
from probekit.plots.curves import of_analyses, plot_rows
from probekit.plots.domains import SIZES, TERMS
from probekit.plots.layers import INFORMATION, LAYERED, curve_rows, kept, of_metric
from probekit.plots.legends import common
from probekit.plots.look import Look
from probekit.plots.mix import MIX
from probekit.plots.noise import HOLLOW, NOT_ABOVE, TASK
from probekit.plots.options import PlotOptions
from probekit.plots.relation import relation_rows
from probekit.plots.titles import control_title, first_line
from probekit.plots.transfer import transfer_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CAPTION_FILE", "caption_path", "details", "listed", "write_caption"]

CAPTION_FILE = FileKind("a caption as probekit wrote it", is_sealed)
WHY = {
    NOT_ABOVE: "Hollow markers: not above noise (p > 0.05, corrected over layers).",
    HOLLOW: "Hollow markers: not above noise, by a look at the interval, which reaches noise; not a test.",
    TASK: "Half-filled markers: the interval reaches what control tasks reach.",
}


def caption_path(figure: Path) -> Path:
    """Where the caption of a figure stands: ``FIGURE.caption.txt``."""
    return figure.with_suffix(".caption.txt")


def write_caption(figure: Path, words: str) -> Path:
    """Write a caption beside a figure; one that is there and is not as it was written, someone's own words, stays."""
    path = caption_path(figure)
    if not path.exists() or (path.is_file() and not path.is_symlink() and is_sealed(path)):
        write(path, f"{words}\n\n# {MARK}\n", CAPTION_FILE)
    return path


def details(kind: str, rows: pd.DataFrame, options: PlotOptions, look: Look) -> str:
    """What a caption says after its first words: data and n, estimator, what intervals, bands and markers are.

    Parameters
    ----------
    kind : str
        Of the figure.
    rows : DataFrame
        As the figure was drawn of.
    options : PlotOptions
        Those it was drawn with.
    look : Look
        Names, and what intervals cover.
    """
    return " ".join(DETAILS[kind](plot_rows(rows), options, look))


def _layers(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    import pandas as pd

    rows = kept(of_analyses(rows, *LAYERED))
    parts = [curve_rows(of_metric(part, options.metric)) for _, part in rows.groupby("task", sort=False)]
    points = pd.concat(parts)
    curve, control, line = (points[points["role"] == role] for role in ("curve", "control", "line"))
    yield from _measured(curve, look)
    labels = [look.shown(label) for label in curve["label"].unique()]
    same = common(labels)
    yield f"Curves: {'; '.join(label.removeprefix(f'{same}, ') for label in labels)}."
    banded = curve[~curve["one_of_seeds"].astype(bool)]
    if banded["ci_low"].notna().any():
        yield f"Bands and bars: {look.interval}s, each of one layer alone."
    if curve["one_of_seeds"].any():
        yield "Thin lines: single seeds, without intervals."
    for label, band in control.groupby("label", sort=False):
        holds = "the range" if band["of_draws"].iloc[0] else f"the {look.middle}"
        yield f"{_first(_plural(str(label)))}: the band holds {holds} of values with them{_draws(rows, band)}."
    for why in (w for w in WHY if (curve["hollow"] == w).any()):
        yield WHY[why]
    if "shown_high" in curve and (curve["value"].isna() & curve["ci_low"].notna()).any():
        yield "Crosses: undetermined; dotted is what is possible."
    if len(line):
        yield f"Horizontal lines: {listed(line['label'].unique())}."


def _plural(label: str) -> str:
    return label.replace("control task", "control tasks")


def _draws(rows: pd.DataFrame, band: pd.DataFrame) -> str:
    """How many draws of a control there were, where the rows tell."""
    own = rows[rows["target"] == band["target"].iloc[0]]
    counts = own["draw"].dropna().nunique()
    for column in ("controls", "shuffles"):
        if column in own and own[column].notna().any():
            counts = max(counts, int(own[column].max()))
    return f" ({counts:,} draws)" if counts else ""


def _measured(gold: pd.DataFrame, look: Look) -> Iterator[str]:
    """Metrics by task, splits and n, and by what they were measured."""
    parts = []
    for metric, of in gold.groupby("metric", sort=False):
        many = [
            f"{look.task(str(task))}, {listed(part['split'].unique())}, n = {part['n'].max():,}"
            for task, part in of.groupby("task", sort=False)
        ]
        parts.append(f"{first_line(str(metric))} ({'; '.join(many)})")
    yield f"{'; '.join(parts)}."
    models = [look.shown(name.rsplit("/", 1)[-1]) for name in gold["model"].unique() if name]
    how = gold[gold["estimator"] != ""]
    information = (how["metric"] == INFORMATION).any()
    words = [f"{listed(how['estimator'].unique())} {'estimator' if information else 'probes'}"] if len(how) else []
    pooled = [name for name in gold["representation"].unique() if name not in ("", "none")]
    words += [f"{listed(pooled)} representations"] if pooled else []
    if models:
        yield f"{'Models' if len(models) > 1 else 'Model'}: {listed(models)}{'; ' if words else ''}{', '.join(words)}."


def _differences(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    rows = rows[rows["analysis"] == "compare"]
    yield from _measured(rows.assign(metric=rows["metric"].map(lambda name: metric_called(name).of)), look)
    yield f"Differences: minus {listed(look.shown(control_title(name)) for name in rows['against'].unique())}, paired."
    yield f"Thick bars: {look.interval}s of one layer; thin bars: of all layers at once."
    if (rows["p_adjusted"] > options.level).any():
        yield f"Hollow markers: not above noise (p > {options.level:g}, corrected)."


def _trajectory(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    import pandas as pd

    rows = of_analyses(rows, *LAYERED, "train")
    rows = pd.concat([of_metric(part, options.metric) for _, part in rows.groupby("task", sort=False)])
    yield from _measured(rows[(rows["target"] == "gold") & (rows["layer_name"] != "")], look)
    yield "Dots: the best layer of each step that is above noise."
    if (rows["target"] != "gold").any():
        yield f"Hatched cells: not above noise ({listed(_controls(rows))})."


def _controls(rows: pd.DataFrame) -> list[str]:
    return [control_title(name) for name in rows["target"].unique() if name != "gold"]


def _mix(rows: pd.DataFrame, _options: PlotOptions, look: Look) -> Iterator[str]:
    rows = kept(rows)
    rows = rows[(rows["metric"] == MIX) & (rows["layer_name"] != "")]
    yield from _measured(rows, look)
    seeds = int(rows.groupby(["task", "model", "method", "run_kind"])["seed"].nunique().max())
    if seeds > 1:
        yield f"Lines: means of {seeds} seeds; bands: from the least to the greatest."
    yield "Dotted: the even mix."


def _domains(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    rows = of_analyses(rows, "domains")
    named = [m for m in rows["metric"].unique() if m not in (SIZES, TERMS)]
    own = rows[rows["metric"].isin([options.metric or (named or [""])[0]]) & (rows["target"] == "gold")]
    yield from _sizes(own)
    if "p" in own and (own["p"] > 0.05).any():
        yield "Hatched cells: sampling alone gives as much (p > 0.05)."
    if (rows["metric"] == TERMS).any():
        yield f"Terms: the {options.top} that add most to the divergence of a pair."
    if (rows["metric"] == SIZES).any():
        yield "By size: solid lines are corrected for what sampling adds, dashed ones raw; bands are of random parts."


def _transfer(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    yield from _sizes(transfer_rows(rows))
    yield f"Metric: {_metrics(transfer_rows(rows))}."


def _relation(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    points, correlations = relation_rows(rows, transfer=options.transfer)
    yield f"Metrics: {_metrics(points)}. Points: {'pairs of domains' if options.transfer else 'domains'}."
    yield from _sizes(points)
    if points["ci_low"].notna().any():
        yield f"Bars: {look.interval}s."
    if len(correlations):
        yield f"In brackets: {look.interval}s of the correlations; p by permutation."


def _metrics(rows: pd.DataFrame) -> str:
    return listed(metric_called(str(m)).title.replace("\n", " ") for m in rows["metric"].unique())


def _sizes(own: pd.DataFrame) -> Iterator[str]:
    if own["n"].notna().any():
        low, high = int(own["n"].min()), int(own["n"].max())
        yield f"n = {low:,}." if low == high else f"n from {low:,} to {high:,}."


def listed(words: Iterable[str]) -> str:
    """Words as a list in a sentence."""
    *first, last = list(dict.fromkeys(map(str, words))) or [""]
    return f"{', '.join(first)}{' and ' * bool(first)}{last}"


def _first(words: str) -> str:
    return words[:1].upper() + words[1:]


DETAILS: dict[str, Callable[[pd.DataFrame, PlotOptions, Look], Iterator[str]]] = {
    "layers": _layers,
    "differences": _differences,
    "trajectory": _trajectory,
    "mix": _mix,
    "domains": _domains,
    "relation": _relation,
    "transfer": _transfer,
}
