"""Which figures rows have: those made already, and those that the package's plots draw of what these do not show."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from probekit import plots
from probekit.errors import DataError, ProbekitError, UsageError
from probekit.plots.domains import SIZES, TERMS, TITLES
from probekit.plots.kinds import LAYERED, Kind
from probekit.plots.relation import relation_rows, transfer_rows
from probekit.plots.style import metric_title
from probekit.report.curves import best_layers, by_layer, main_rows
from probekit.report.sources import Made
from probekit.report.svg import drawn, embed
from probekit.report.tables import number
from probekit.report.text import text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Drawing", "given", "of_kind"]

MOST_PANELS, MOST_CURVES = 24, 24
NAMES = ("F1", "Matthews", "Pearson", "Spearman", "V-")
COLUMNS, WIDE = 3, 9
"""Panels side by side, or inches, so that a figure is as wide as the text."""
CURVE = ["model", "checkpoint", "step", "representation", "estimator", "split", "seed"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of the page; ``why`` it could not be drawn where ``html`` is empty; ``command`` draws it again."""

    caption: str
    html: Markup
    why: str = ""
    command: str = ""
    card: tuple[tuple[str, str], ...] = ()


def given(kinds: Mapping[Kind, pd.DataFrame], figures: Sequence[Made], prefix: str) -> Iterator[Drawing]:
    """Figures made elsewhere, with their commands, and captions: those beside the file, or else of what is drawn.

    kinds : the rows of each kind of the page; prefix : of ids in the page
    Raises DataError naming a file that is missing or no figure.
    """
    for i, made in enumerate(figures):
        path = made.path
        if not path.is_file():
            raise DataError("there is no such figure.", file=path)
        card: Mapping[str, Any] = {}
        if (beside := path.with_suffix(".json")).is_file():
            try:
                loaded = json.loads(text(beside))
            except ValueError as error:
                raise DataError(f"the caption is no JSON ({error}).", file=beside) from None
            card = loaded if isinstance(loaded, dict) else {}
        own, long = _said(kinds, made)
        caption = str(card.get("caption") or card.get("title") or own)
        if (written := path.with_suffix(".md")).is_file():
            caption = " ".join(text(written).split())
        facts = tuple((key, str(card[key])) for key in ("created", "git") if card.get(key))
        alt = str(card.get("title") or caption)
        try:
            html = embed(path.read_bytes(), f"{prefix}given-{i + 1}", alt, str(card.get("alt") or long))
        except DataError as error:
            raise DataError(str(error), file=path) from None
        yield Drawing(caption, html, command=str(card.get("command") or shlex.join(made.words)), card=facts)


def _said(kinds: Mapping[Kind, pd.DataFrame], made: Made) -> tuple[str, str]:
    """Caption and description of a figure that ``probekit plot`` made of these rows; else its name, and nothing."""
    if one := _drawn(made):
        parts = ((kind, rows[rows["file"].isin(one.files)]) for kind, rows in kinds.items())
        for wanted in (wanted for kind, part in parts if len(part) for wanted in _wanted(kind, part, ())):
            if wanted.words[:1] == (one.what,) and one.transfer == ("--transfer" in wanted.words):
                metric = f"{metric_title(one.metric).splitlines()[0]}: " if one.metric else ""
                return metric + wanted.caption, wanted.long
    return made.path.stem.replace("-", " ").replace("_", " "), ""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What a command of ``probekit plot`` draws: a plot, of files, of a metric ("" for the main one)."""

    what: str
    files: frozenset[str]
    metric: str = ""
    transfer: bool = False


def _drawn(made: Made) -> _Drawn | None:
    if made.words[:2] != ("probekit", "plot"):
        return None
    what, *words = made.words[2:]
    options = dict(pairwise(words))
    files = frozenset(str(Path(word)) for word in words if Path(word).suffix in (".parquet", ".csv"))
    return _Drawn(what, files, options.get("--metric", ""), "--transfer" in words)


def of_kind(
    kind: Kind, kinds: Mapping[Kind, pd.DataFrame], figures: Sequence[Made] = (), prefix: str = ""
) -> Iterator[Drawing]:
    """The figures of one kind of rows, but those that figures made elsewhere show.

    kinds : rows of each kind, with a column ``file``; prefix : of ids in the page
    """
    for i, wanted in enumerate(_wanted(kind, kinds[kind], [d for d in map(_drawn, figures) if d])):
        try:
            figure = drawn(wanted.function(wanted.rows))
            html, why = embed(figure, f"{prefix}{kind.name.lower()}-{i + 1}", wanted.caption, wanted.long), ""
            command = _command(kind, wanted, kinds)
        except Exception as error:  # whatever a plot runs into, the page is worth having
            html, command = Markup(), ""
            why = str(error) if isinstance(error, ProbekitError) else f"{type(error).__name__}: {error}"
        yield Drawing(wanted.caption, html, why, command)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A figure that rows may have; ``long`` says what it shows, ``words`` tell probekit plot to draw it."""

    function: Callable[[pd.DataFrame], Figure]
    rows: pd.DataFrame
    caption: str
    long: str = ""
    words: tuple[str, ...] = ()


def _command(kind: Kind, wanted: _Wanted, kinds: Mapping[Kind, pd.DataFrame]) -> str:
    """What draws the figure again; "" where no command does, since the files hold curves of other kinds, too."""
    words, files = wanted.words, list(dict.fromkeys(wanted.rows["file"]))
    if words[:1] in (("layers",), ("trajectory",)) and kind in LAYERED:
        rivals = {*LAYERED, *[Kind.TRAINING] * (words[0] == "trajectory")} - {kind}
        others = (kinds[other]["file"] for other in rivals & set(kinds))
        metrics = wanted.rows["metric"].unique()
        if any(one.isin(files).any() for one in others):
            words = (*words, "--metric", str(metrics[0])) if len(metrics) == 1 else ()
    if not words:
        return ""
    return shlex.join(["probekit", "plot", words[0], *files, *words[1:], "--out", f"{kind.name.lower()}.pdf"])


def _left(rows: pd.DataFrame, shown: Sequence[_Drawn], what: str, *, transfer: bool = False) -> pd.DataFrame:
    """The rows that no figure of this plot shows already."""
    for one in shown:
        if (one.what, one.transfer) == (what, transfer):
            asked = rows["metric"].isin((one.metric, SIZES, TERMS)) if one.metric else True
            rows = rows[~(rows["file"].isin(one.files) & asked)]
    return rows


def _wanted(kind: Kind, rows: pd.DataFrame, shown: Sequence[_Drawn]) -> Iterator[_Wanted]:
    if kind in LAYERED:
        yield from _of_layers(main_rows(rows), shown)
    elif kind is Kind.TRAINING:
        mixes = _left(rows[(rows["metric"] == "mix-weight") & (rows["layer_name"] != "")], shown, "mix")
        if len(mixes):
            caption = "Weight of each layer in the scalar mix that training ended with; dotted is the even mix."
            yield _Wanted(_mix, mixes, caption, _mixes(mixes), ("mix", "--columns", str(COLUMNS)))
    elif kind is Kind.DIFFERENCES:
        if len(left := _left(rows, shown, "differences")):
            caption = "Paired differences by layer on the same examples; hollow where the corrected p is above 0.05."
            yield _Wanted(_differences, left, caption, "", ("differences", "--columns", str(COLUMNS)))
    elif kind is Kind.DOMAINS:
        yield from _of_domains(rows, shown)
    elif kind is Kind.RELATION:
        yield from _of_relation(rows, shown)


def _of_layers(rows: pd.DataFrame, shown: Sequence[_Drawn]) -> Iterator[_Wanted]:
    """rows : of the main metrics"""
    gold = rows[rows["target"] == "gold"]
    moving = gold.groupby(["task", "model", "checkpoint"])["step"].nunique()
    moving = moving[moving > 1]
    if len(left := _left(rows, shown, "layers")):
        ends, words = "", tuple[str, ...](("layers", "--columns", str(COLUMNS)))
        if len(moving):
            left, ends, words = _ends(left), ", at the first and the last step of each run", ()
        yield _Wanted(_layers, left, f"{_metrics(left)} by layer{ends}.", _best(left), words)
    some = _left(rows[rows["task"].isin(moving.index.unique("task"))], shown, "trajectory")
    if len(some):
        caption = f"{_metrics(some)} by layer and training step; a dot marks the best layer of each step."
        yield _Wanted(_trajectory, some, caption, _best(some), ("trajectory", "--columns", str(COLUMNS - 1)))


def _metrics(rows: pd.DataFrame) -> str:
    return _and(metric_title(str(metric)).splitlines()[0] for metric in rows["metric"].unique())


def _best(rows: pd.DataFrame) -> str:
    return " ".join(_in_words(best_layers(by_layer(rows))))


def _of_domains(rows: pd.DataFrame, shown: Sequence[_Drawn]) -> Iterator[_Wanted]:
    """The first metric with terms and sizes, as ``probekit plot domains`` draws them; then each other."""
    pairs = rows[~rows["metric"].isin((SIZES, TERMS))]
    named = list(map(str, pairs["metric"].unique()))
    for metric in named or [""]:
        first = metric == (named or [""])[0]
        part = rows[rows["metric"].isin((metric, SIZES, TERMS))] if first else pairs[pairs["metric"] == metric]
        if (left := _left(part, shown if first else [d for d in shown if d.metric], "domains")).empty:
            continue
        corrected = (part["estimator"] == "null-corrected").any()
        more = "corrected for what sampling adds" if corrected else "and of two halves of each, on the diagonal"
        caption = f"{TITLES.get(metric, metric)} of each two domains, {more}; hatched where sampling gives as much."
        gold = left[(left["target"] == "gold") & (left["metric"] == metric)].sort_values("value")
        ends = zip(gold["domain_a"], gold["domain_b"], gold["value"], strict=True)
        long = "; ".join(f"{a} and {b} {number(value)}" for a, b, value in islice(ends, MOST_CURVES))
        told = ("domains", *(() if first else ("--metric", metric)), "--width", str(WIDE))
        whole = first or not rows["metric"].isin((SIZES, TERMS)).any()  # else the command would draw these, too
        caption = caption if metric else "The terms that tell domains apart, and divergence by the number of documents."
        yield _Wanted(_domains, left, caption, long, told if whole else ())


def _of_relation(rows: pd.DataFrame, shown: Sequence[_Drawn]) -> Iterator[_Wanted]:
    if not {"trained_on", "corpus", "x", "of_metric"} <= set(rows.columns):
        return
    one = "Metrics of each domain against its distance from corpora, with their correlations."
    two = "What is lost by training on another domain, against the distance of the two."
    for caption, transfer in ((one, False), (two, True)):
        left = _left(rows, shown, "relation", transfer=transfer)
        if len(left) and len(relation_rows(left, transfer=transfer)[0]):
            words = ("relation", *["--transfer"] * transfer)
            yield _Wanted(_lost if transfer else _relation, left, caption, "", words)
    left = _left(rows, shown, "transfer")
    if len(left) and len(transfer_rows(left)):
        caption = "What training on one domain is worth on each other; framed where it is the same."
        yield _Wanted(_transfer, left, caption, "", ("transfer",))


def _relation(rows: pd.DataFrame) -> Figure:
    return plots.relation_panels(*relation_rows(rows))


def _lost(rows: pd.DataFrame) -> Figure:
    return plots.relation_panels(*relation_rows(rows, transfer=True))


def _transfer(rows: pd.DataFrame) -> Figure:
    return plots.transfer_panels(transfer_rows(rows))


def _domains(rows: pd.DataFrame) -> Figure:
    return plots.domain_panels(rows, width=WIDE)


def _mix(rows: pd.DataFrame) -> Figure:
    return plots.mix_panels(rows, columns=COLUMNS)


def _layers(rows: pd.DataFrame) -> Figure:
    _few(rows, rows["task"].nunique(), "probekit plot layers")
    return plots.layer_panels(rows, columns=COLUMNS)


def _differences(rows: pd.DataFrame) -> Figure:
    return plots.difference_panels(rows, columns=COLUMNS)


def _trajectory(rows: pd.DataFrame) -> Figure:
    runs = rows.groupby(["task", "model", "checkpoint", "representation", "estimator", "seed"], dropna=False).ngroups
    _few(rows.iloc[:0], runs, "probekit plot trajectory")
    return plots.trajectory_panels(rows, columns=COLUMNS - 1)


def _few(rows: pd.DataFrame, panels: int, command: str) -> None:
    """Raise UsageError for what nobody could read."""
    gold = rows[(rows["target"] == "gold") & (rows["layer_name"] != "")]
    curves = int(gold.groupby(["task", *CURVE], dropna=False).ngroups / max(1, panels))
    if panels > MOST_PANELS or curves > MOST_CURVES:
        many = f"{panels:,} panels" if panels > MOST_PANELS else f"{curves:,} curves in a panel"
        raise UsageError(f"{many} are too many to read; draw some of them with {command}.")


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each run the first and the last step, and all that has no step."""
    steps = rows.groupby(["task", "model", "checkpoint"], dropna=False)["step"]
    first, last = steps.transform("min"), steps.transform("max")
    at_end = ((rows["step"] == first) | (rows["step"] == last)).fillna(value=False)
    return rows[rows["step"].isna() | at_end]


def _in_words(best: Iterator[dict[str, Any]]) -> Iterator[str]:
    for row in list(best)[:MOST_PANELS]:
        value, noise = float(row["value"]), float(row["noise_mean"])
        beside = f", shuffled labels {number(noise)}" if noise == noise else ""
        yield f"{row['task']}, {row['curve']}: best at layer {row['layer']} with {number(value)}{beside}."


def _mixes(rows: pd.DataFrame) -> str:
    kept = rows[rows["kept"].astype(bool) & rows["value"].notna()]
    top = kept.loc[kept.groupby(["task", "checkpoint"])["value"].idxmax()]
    named = zip(
        top["checkpoint"].where(top["checkpoint"] != "", top["task"]), top["layer_name"], top["value"], strict=True
    )
    return " ".join(f"{name}: most weight on layer {layer}, {number(value)}." for name, layer, value in named)


def _and(words: Iterable[str]) -> str:
    """Words as a list in a sentence, small but for the first and for names."""
    first, *others = dict.fromkeys(words)
    small = [word if word.startswith(NAMES) else word[0].lower() + word[1:] for word in others]
    return f"{', '.join([first, *small[:-1]])} and {small[-1]}" if small else first
