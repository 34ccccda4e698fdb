"""The figures of a page: existing ones, and plots of all rows that these do not show."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from probekit.analysis import Reads, analyses
from probekit.errors import DataError, ProbekitError, UsageError
from probekit.plots.domain_sizes import SIZES
from probekit.plots.domains import TERMS
from probekit.plots.figure import details, plot
from probekit.plots.files import as_bytes
from probekit.plots.look import Look, one_line
from probekit.plots.options import KINDS, PlotOptions, figure_of
from probekit.plots.relation import relation_rows
from probekit.plots.transfer import transfer_rows
from probekit.recipe import Recipe
from probekit.report.curves import best_layers, by_layer, main_rows
from probekit.report.markdown import text
from probekit.report.sections import TRAINING, is_by_layer
from probekit.report.studies import Made, Plot
from probekit.report.svg import embed
from probekit.report.tables import number

if TYPE_CHECKING:
    import pandas as pd

MOST_PANELS, MOST_CURVES = 24, 24
MOST_MAPS = 6
NAMES = ("F1", "Matthews", "Pearson", "Spearman", "V-")
COLUMNS, WIDE = 4, 9
"""Panels side by side, or inches, for a figure as wide as the text."""
CURVE = ["model", "run", "step", "representation", "method", "split", "seed"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of the page; if ``html`` is empty, ``why`` is the reason; ``command`` reproduces the figure."""

    caption: str
    html: Markup
    why: str = ""
    command: str = ""
    card: tuple[tuple[str, str], ...] = ()


def given(sections: Mapping[str, pd.DataFrame], figures: Sequence[Made], prefix: str) -> Iterator[Drawing]:
    """Existing figures, with their commands, and captions from a file next to them or from the rows.

    Parameters
    ----------
    sections : Mapping[str, pd.DataFrame]
        The rows of each section of the page.
    prefix : str
        Prefix of ids in the page.

    Raises
    ------
    DataError
        For a file that is missing or not a figure.
    """
    for i, made in enumerate(figures):
        path = made.path
        if not path.is_file():
            raise DataError("this figure does not exist.", file=path)
        card: Mapping[str, Any] = {}
        if (beside := path.with_suffix(".json")).is_file():
            try:
                loaded = json.loads(text(beside))
            except ValueError as error:
                raise DataError(f"the caption is not valid JSON ({error}).", file=beside) from None
            card = loaded if isinstance(loaded, dict) else {}
        default, long = _caption(sections, made)
        caption = str(card.get("caption") or card.get("title") or default)
        if (written := path.with_suffix(".md")).is_file():
            caption = " ".join(text(written).split())
        facts = tuple((key, str(card[key])) for key in ("created", "git") if card.get(key))
        alt = str(card.get("title") or caption)
        try:
            html = embed(path.read_bytes(), f"{prefix}given-{i + 1}", alt, str(card.get("alt") or long))
        except DataError as error:
            raise DataError(str(error), file=path) from None
        yield Drawing(caption, html, command=str(card.get("command") or shlex.join(made.words)), card=facts)


def _caption(sections: Mapping[str, pd.DataFrame], made: Made) -> tuple[str, str]:
    """Caption and description of a figure that ``probekit plot`` drew from these rows; otherwise its file name, ""."""
    if shown := made.plot:
        parts = ((section, rows[rows["file"].isin(shown.rows)]) for section, rows in sections.items())
        for plan in (plan for section, part in parts if len(part) for plan in _planned(section, part, ())):
            if (plan.kind, plan.transfer) == (shown.kind, shown.transfer):
                metric = f"{one_line(shown.metric)}: " if shown.metric else ""
                return metric + _whole(plan), plan.long
    return made.path.stem.replace("-", " ").replace("_", " "), ""


def of_section(
    section: str, sections: Mapping[str, pd.DataFrame], figures: Sequence[Made] = (), prefix: str = ""
) -> Iterator[Drawing]:
    """The figures of one section, except those that existing figures show.

    Parameters
    ----------
    sections : Mapping[str, pd.DataFrame]
        Rows of each section, with a column ``file``.
    prefix : str, default ''
        Prefix of ids in the page.
    """
    shown = [made.plot for made in figures if made.plot]
    for i, plan in enumerate(_planned(section, sections[section], shown)):
        try:
            _check_readable(plan)
            figure = as_bytes(plot(plan.kind, plan.rows, **plan.options), ".svg")
            html, why = embed(figure, f"{prefix}{section}-{i + 1}", plan.caption, plan.long), ""
            caption = _whole(plan)
            command = _command(section, plan, sections)
        except Exception as error:  # a failing plot must not lose the page
            html, command, caption = Markup(), "", plan.caption
            why = str(error) if isinstance(error, ProbekitError) else f"{type(error).__name__}: {error}"
        yield Drawing(caption, html, why, command)


def _whole(plan: _Planned) -> str:
    """A caption that also explains intervals, bands and markers, as far as the rows allow."""
    try:
        explanation = details(plan.kind, plan.rows, PlotOptions(**plan.options), Look())
    except ProbekitError:
        return plan.caption
    return f"{plan.caption} {explanation}".rstrip()


@dataclass(frozen=True, slots=True)
class _Planned:
    """A figure of the rows, as ``probekit plot`` draws it.

    long : a description in words; whole : whether plotting the whole files of the rows gives the same figure
    """

    kind: str
    rows: pd.DataFrame
    own_caption: str = ""
    long: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True

    @property
    def caption(self) -> str:
        """The first sentence of the caption, by default that of all figures of the kind."""
        return self.own_caption or figure_of(self.kind).head

    @property
    def transfer(self) -> bool:
        """Whether the figure shows the loss from training on another domain."""
        return bool(self.options.get("transfer"))


def _command(section: str, plan: _Planned, sections: Mapping[str, pd.DataFrame]) -> str:
    """The command that reproduces the figure; "" if no command can, because the files have curves of other sections."""
    options, files = dict(plan.options), list(dict.fromkeys(plan.rows["file"]))
    whole = plan.whole
    if plan.kind in ("layers", "trajectory") and is_by_layer(section):
        rivals = [name for name in sections if is_by_layer(name) or (name == TRAINING and plan.kind == "trajectory")]
        others = (sections[other]["file"] for other in rivals if other != section)
        metrics = plan.rows["metric"].unique()
        if any(of_other.isin(files).any() for of_other in others):
            options["metric"], whole = str(metrics[0]), whole and len(metrics) == 1
    arguments = {"kind": plan.kind, "rows": files, "out": f"{section}.pdf", **options}
    return str(Recipe.of("plot", arguments)) if whole else ""


def _left(rows: pd.DataFrame, shown: Sequence[Plot], kind: str, *, transfer: bool = False) -> pd.DataFrame:
    """The rows that no existing figure of this kind shows."""
    for figure in shown:
        if (figure.kind, figure.transfer) == (kind, transfer):
            of_metric = rows["metric"].isin((figure.metric, SIZES, TERMS)) if figure.metric else True
            rows = rows[~(rows["file"].isin(figure.rows) & of_metric)]
    return rows


def _planned(section: str, rows: pd.DataFrame, shown: Sequence[Plot]) -> Iterator[_Planned]:
    if is_by_layer(section):
        yield from _of_layers(main_rows(rows), shown)
    elif section == TRAINING:
        mixes = _left(rows[(rows["metric"] == "mix-weight") & (rows["layer_name"] != "")], shown, "mix")
        if len(mixes):
            yield _Planned("mix", mixes, "", _mixes(mixes), {"columns": COLUMNS})
    elif section == "compare":
        if len(left := _left(rows, shown, "differences")):
            yield _Planned("differences", left, options={"columns": COLUMNS})
    elif section == "domains":
        yield from _of_domains(rows, shown)
    elif section == "transfer":
        yield from _of_relation(rows, shown)
    elif section in analyses():
        yield from _of_analysis(section, rows, shown)


def _of_layers(rows: pd.DataFrame, shown: Sequence[Plot]) -> Iterator[_Planned]:
    """rows : those of the main metrics"""
    gold = rows[rows["target"] == "gold"]
    moving = gold.groupby(["task", "model", "run"])["step"].nunique()
    moving = moving[moving > 1]
    if len(left := _left(rows, shown, "layers")):
        ends = ", at the first and the last step of each run" if len(moving) else ""
        left = _ends(left) if ends else left
        caption = f"{_metrics(left)} by layer{ends}."
        yield _Planned("layers", left, caption, _best(left), {"columns": COLUMNS}, whole=not ends)
    some = _left(rows[rows["task"].isin(moving.index.unique("task"))], shown, "trajectory")
    if len(some):
        caption = f"{_metrics(some)} by layer and training step; a dot marks the best layer of each step."
        yield _Planned("trajectory", some, caption, _best(some), {"columns": COLUMNS - 1})


def _of_analysis(kind: str, rows: pd.DataFrame, shown: Sequence[Plot]) -> Iterator[_Planned]:
    """The analysis's own kind of figure, of a few pairs of models; all checkpoints of a run as a trajectory."""
    paired, whole = "model_b" in rows, True
    if kind in KINDS and len(few := _left(rows, shown, kind)):
        if paired:
            pair = ["task", "model", "checkpoint", "step", "model_b", "checkpoint_b", "step_b", "metric"]
            codes = few.groupby([c for c in pair if c in few], sort=False, dropna=False).ngroup()
            whole = codes.nunique() <= MOST_MAPS
            few = few if whole else few[codes == codes.max()]
        caption = "" if whole else f"{figure_of(kind).head} Only the last pair of models is shown."
        yield _Planned(kind, few, caption, "", {"columns": COLUMNS - 1}, whole=whole)
    steps = "step_b" if paired else "step"
    moving = rows.groupby("task")[steps].nunique() if steps in rows else rows.groupby("task")["n"].count() * 0
    some = _left(rows[rows["task"].isin(moving.index[moving > 1])], shown, "trajectory")
    if len(some) and analyses()[kind].reads in (Reads.REFERENCE, Reads.MODELS):
        caption = f"{one_line(str(some['metric'].iloc[0]))} by layer and training step."
        yield _Planned("trajectory", some, caption, "", {"columns": COLUMNS - 1})


def _metrics(rows: pd.DataFrame) -> str:
    return _and(one_line(str(metric)) for metric in rows["metric"].unique())


def _best(rows: pd.DataFrame) -> str:
    return " ".join(_in_words(best_layers(by_layer(rows))))


def _of_domains(rows: pd.DataFrame, shown: Sequence[Plot]) -> Iterator[_Planned]:
    """The first metric with terms and sizes, as ``probekit plot domains`` draws them; then each other metric."""
    pairs = rows[~rows["metric"].isin((SIZES, TERMS))]
    named = list(map(str, pairs["metric"].unique()))
    for metric in named or [""]:
        first = metric == (named or [""])[0]
        part = rows[rows["metric"].isin((metric, SIZES, TERMS))] if first else pairs[pairs["metric"] == metric]
        if (left := _left(part, shown if first else [d for d in shown if d.metric], "domains")).empty:
            continue
        corrected = part["estimator"].isin(("corrected", "null-corrected")).any()
        more = "corrected for sampling noise" if corrected else "with two halves of each domain on the diagonal"
        caption = "The terms that contribute most, and divergence by the number of documents."
        if metric:
            caption = f"{one_line(metric)} of all pairs of domains, {more}; hatched if no larger than sampling noise."
        gold = left[(left["target"] == "gold") & (left["metric"] == metric)].sort_values("value")
        ends = zip(gold["domain_a"], gold["domain_b"], gold["value"], strict=True)
        long = "; ".join(f"{a} and {b} {number(value)}" for a, b, value in islice(ends, MOST_CURVES))
        options = {"width": WIDE} if first else {"metric": metric, "width": WIDE}
        whole = first or not rows["metric"].isin((SIZES, TERMS)).any()  # else the command would also draw these
        yield _Planned("domains", left, caption, long, options, whole)


def _of_relation(rows: pd.DataFrame, shown: Sequence[Plot]) -> Iterator[_Planned]:
    if not {"corpus", "x", "of_metric"} <= set(rows.columns):
        return
    for transfer in (False, True):
        left = _left(rows, shown, "relation", transfer=transfer)
        if len(left) and len(relation_rows(left, transfer=transfer)[0]):
            yield _Planned("relation", left, options={"transfer": True} if transfer else {})
    left = _left(rows, shown, "transfer")
    if len(left) and len(transfer_rows(left)):
        yield _Planned("transfer", left)


def _check_readable(plan: _Planned) -> None:
    """Raise UsageError for a figure with too many panels or curves to read."""
    rows = plan.rows
    if plan.kind == "trajectory":
        runs = rows.groupby(["task", "model", "run", "representation", "method", "seed"], dropna=False).ngroups
        panels, curves = runs, 0
    elif plan.kind == "layers":
        panels = rows["task"].nunique()
        gold = rows[(rows["target"] == "gold") & (rows["layer_name"] != "")]
        curves = int(gold.groupby(["task", *CURVE], dropna=False).ngroups / max(1, panels))
    else:
        return
    if panels > MOST_PANELS or curves > MOST_CURVES:
        many = f"{panels:,} panels" if panels > MOST_PANELS else f"{curves:,} curves in a panel"
        raise UsageError(f"{many} are too many to read; draw some of them with probekit plot {plan.kind}.")


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """The first and the last step of each run, and all rows without a step."""
    steps = rows.groupby(["task", "model", "run"], dropna=False)["step"]
    first, last = steps.transform("min"), steps.transform("max")
    at_end = ((rows["step"] == first) | (rows["step"] == last)).fillna(value=False)
    return rows[rows["step"].isna() | at_end]


def _in_words(best: Iterator[dict[str, Any]]) -> Iterator[str]:
    for row in list(best)[:MOST_PANELS]:
        value, noise = float(row["value"]), float(row["noise_mean"])
        beside = f", noise {number(noise)}" if noise == noise else ""
        yield f"{row['task']}, {row['curve']}: best at layer {row['layer']} with {number(value)}{beside}."


def _mixes(rows: pd.DataFrame) -> str:
    kept = rows[rows["kept"].astype(bool) & rows["value"].notna()]
    top = kept.loc[kept.groupby(["task", "checkpoint"])["value"].idxmax()]
    named = zip(
        top["checkpoint"].where(top["checkpoint"] != "", top["task"]), top["layer_name"], top["value"], strict=True
    )
    return " ".join(f"{name}: most weight on layer {layer}, {number(value)}." for name, layer, value in named)


def _and(words: Iterable[str]) -> str:
    """Words as a list in a sentence, in lower case except the first and names."""
    first, *others = dict.fromkeys(words)
    small = [word if word.startswith(NAMES) else word[0].lower() + word[1:] for word in others]
    return f"{', '.join([first, *small[:-1]])} and {small[-1]}" if small else first
