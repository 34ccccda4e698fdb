"""What holds for every kind of figure at the widths of a column and a page of a journal, on shipped rows."""

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from test_confusion import result as confused
from test_expected import curve
from test_learning import ROWS as LEARNING
from test_plot_adaptation import probe, result
from test_plot_adaptation import run as tuned
from test_plot_differences import BASE as DIFFERENCE
from test_plot_directions import records as across
from test_plot_domains import six, term
from test_plot_layers import records
from test_plot_mixes import run
from test_plot_representations import PLACE, similar, together
from test_plot_shift import records as shifted
from test_relation_plots import crossed

from probekit.plots.confusion import counts_of
from probekit.plots.curves import printable
from probekit.plots.legends import CURVES
from probekit.plots.look import MOST, Look
from probekit.plots.options import KINDS, WIDTHS, figure_of
from probekit.rows import as_rows, make_rows

HUB = (
    *("meta-llama/Llama-3.2-3B-Instruct", "mistralai/Mistral-7B-Instruct-v0.3"),
    "sentence-transformers/all-mpnet-base-v2-finetuned",
)
"""Long names of models."""
SHIPPED = Path(__file__).parents[2] / "figures"
OURS = [kind for kind in KINDS if figure_of(kind).draw.__module__.startswith("probekit.")]


def shipped(*patterns: str) -> pd.DataFrame:
    return as_rows([str(path) for pattern in patterns for path in sorted(SHIPPED.glob(f"studies/{pattern}.parquet"))])


def last_steps(*patterns: str) -> pd.DataFrame:
    rows = shipped(*patterns)
    step = rows["step_b"].fillna(rows["step"]) if "step_b" in rows else rows["step"]
    return rows[step.isin([345, 804, 256])]


def geometry() -> pd.DataFrame:
    """Three measures of a model, and of random weights."""
    about = PLACE | {"analysis": "geometry", "model": "m", "site": "resid_post"}
    measures = ("participation-ratio", "intrinsic-dimension", "mean-cosine")
    return make_rows(
        about | own | {"metric": name, "layer": i, "value": i + k, "ci_low": i + k - 0.5, "ci_high": i + k + 0.5}
        for k, name in enumerate(measures)
        for i in range(7)
        for own in ({}, {"checkpoint": "random-0", "random_weights": 0})
    )


def four_models() -> pd.DataFrame:
    names = [("", None), *((name, 5) for name in ("fine-tuned on entailment", "fine-tuned on sentiment", "tagging"))]
    return together(*(similar(a=a, b=b, seed=i) for i, (a, b) in enumerate(combinations(names, 2))))


def forgotten() -> pd.DataFrame:
    """Nine ways to tune on one of two tasks, whose probes of the other task get worse by layer, or a little better."""
    tasks = ("cola", "mrpc")
    rows = [row for task in tasks for row in probe(task, [0.6] * 4)]
    for way, on, of in ((way, on, of) for way in range(9) for on in tasks for of in tasks):
        change = 0.02 if of == on else (0.01, -0.05)[of == "mrpc"] * way / 10
        name = f"bottleneck adapters, {way} blocks"
        rows += probe(of, [0.6 + change * i for i in range(4)], **tuned(name, 0, on))
        rows += result(name, 0, way / 10, on, trained_parameters=10 ** (2 + way)) if on == of else []
    return make_rows(rows)


def many_curves() -> pd.DataFrame:
    """Nine models of 33 layers on two tasks."""
    models = (*HUB, *(f"model {i}" for i in range(6)))
    return make_rows(r for task in ("cola", "sst2") for model in models for r in records(task, model, depth=32))


def to_random() -> pd.DataFrame:
    """Three models of 33 layers on two tasks, each minus its random weights."""
    return make_rows(
        DIFFERENCE
        | {"task": task, "model": model, "against": f"{model}, random weights", "layer": i, "value": i / 99}
        | {"ci_low": i / 99 - 0.1, "ci_high": i / 99 + 0.1, "joint_low": i / 99 - 0.2, "joint_high": i / 99 + 0.2}
        | {"p_adjusted": 1 / (1 + i)}
        for task in ("cola", "sst2")
        for model in HUB
        for i in range(33)
    )


def crossed_domains() -> pd.DataFrame:
    """Two ways to train on each of ten domains."""
    names = [f"{name} {i}" for i in (1, 2) for name in ("telephone", "government", "travel", "fiction", "slate")]
    ways = ({"regime": "fine-tune", "head": "linear"}, {"regime": "feature-extraction", "head": "esim"})
    return make_rows(row | {"of_metric": ""} for way in ways for row in crossed(names, **way))


def pairs_and_measures() -> pd.DataFrame:
    """Two measures of four pairs of models."""
    tuned = [(f"fine-tuned on {task}", 5) for task in ("natural language inference", "sentiment", "tagging", "parsing")]
    return together(*(similar(b=b, layers=5, metric=m, p=0.2) for m in ("cka", "mutual-knn") for b in tuned))


def units() -> pd.DataFrame:
    """Four rankings of the 768 units of a layer of two models."""
    about = PLACE | {"analysis": "units", "metric": "accuracy", "layer": 4, "n": 872, "draws": 100}
    sizes = [*(2**i for i in range(10)), 768]
    return make_rows(
        about
        | {"model": model, "estimator": ranking, "target": target, "units": k, "value": value + i / 40}
        | {"ci_low": value + i / 40 - 0.03, "ci_high": value + i / 40 + 0.03}
        for model in HUB[:2]
        for j, ranking in enumerate(("weight", "mean-difference", "max-mean-difference", "information"))
        for target, value in (("gold", 0.6 + j / 30), ("random", 0.52), ("bottom", 0.5))
        for i, k in enumerate(sizes if target != "random" else sizes[:-1])
    )


def board() -> pd.DataFrame:
    rows = as_rows(str(SHIPPED / "suites/everything/scoreboard.parquet"))
    return rows[rows["group"].isin(["affirmative", "negated", "meaning"])]


CASES: dict[str, tuple[str, Callable[[], pd.DataFrame], dict[str, Any]]] = {
    "layers": ("layers", lambda: shipped("figure1-small/probe-cola*"), {}),
    "many curves": ("layers", many_curves, {}),
    "information": ("layers", lambda: shipped("estimators-small/mi-cola*"), {}),
    "differences": ("differences", lambda: shipped("moved-small/compare*"), {}),
    "differences of models": ("differences", to_random, {}),
    "trajectory": ("trajectory", lambda: shipped("moved-small/similarity-cola*"), {}),
    "gains": ("gains", lambda: last_steps("moved-small/compare-mrpc*", "moved-small/similarity-mrpc*"), {}),
    "movement": ("movement", lambda: shipped("moved-small/movement-cola*"), {}),
    "similarity": ("similarity", pairs_and_measures, {}),
    "similarity of 33 layers": ("similarity", lambda: similar(layers=33), {}),
    "scoreboard": ("scoreboard", board, {}),
    "score-correlations": ("score-correlations", lambda: shipped("friends-small/table-scores"), {}),
    "relation": ("relation", lambda: (t := shipped("table6-small/table-table6"))[t["corpus"] != "novels"], {}),
    "relation of pairs": ("relation", lambda: shipped("table6-small/table-table6"), {"transfer": True}),
    "transfer": ("transfer", crossed_domains, {}),
    "adaptation": ("adaptation", forgotten, {}),
    "mix": ("mix", lambda: make_rows([r for h in ("bcn", "esim") for r in run([0.2, 0.3, 0.5], head=h)]), {}),
    "learning": ("learning", lambda: make_rows(LEARNING), {}),
    "expected": (
        "expected",
        lambda: make_rows([r for h in ("bcn", "esim") for r in curve([0.5 + i / 60 for i in range(30)], head=h)]),
        {},
    ),
    "domains": ("domains", lambda: make_rows([*six(), term("she", 0.05, "fiction")]), {}),
    "shift": ("shift", lambda: make_rows(row | {"model": HUB[2]} for row in shifted()), {}),
    "units": ("units", units, {}),
    "geometry": ("geometry", geometry, {}),
    "directions": ("directions", lambda: make_rows(row | {"model": HUB[2]} for row in across(13)), {}),
    "directions of layers": ("directions", lambda: make_rows(across(25)), {"matrix": "mapped"}),
    "confusion": ("confusion", lambda: counts_of(confused()), {}),
    "dendrogram": ("dendrogram", four_models, {}),
}


def drawn(case: str, width: float) -> Figure:
    kind, rows, options = CASES[case]
    figure = figure_of(kind).draw(printable(rows()), **options, width=width, look=Look(page=1))
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return figure


def words(ax: Any) -> Iterator[Text]:
    """Titles, labels and names of one Axes; slanted names have no box of their own."""
    ticks = [tick.label1 for axis in (ax.xaxis, ax.yaxis) for tick in axis._update_ticks()]
    free = [text for text in ax.texts if isinstance(text, Annotation) or text.get_in_layout()]
    for text in (*ticks, ax.title, ax._left_title, ax._right_title, ax.xaxis.label, ax.yaxis.label, *free):
        if text.get_text().strip() and text.get_visible() and text.get_rotation() in (0, 90):
            yield text


def slanted(ax: Any) -> list[Text]:
    ticks = [tick.label1 for tick in ax.xaxis._update_ticks()]
    return [text for text in ticks if text.get_text() and text.get_visible() and text.get_rotation() not in (0, 90)]


def contrasts(ax: Any) -> Iterator[float]:
    """The contrast of each number with the cell under it (WCAG 2.2: relative luminances, 1 to 21)."""
    for text in ax.texts:
        if ax.images and text.get_transform() == ax.transData:
            j, i = text.get_position()
            value = ax.images[0].get_array()[round(i), round(j)]
            below, ink = (
                float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))
                for c in (np.array(to_rgb(colour)) for colour in (ax.images[0].to_rgba(value), text.get_color()))
            )
            yield (max(below, ink) + 0.05) / (min(below, ink) + 0.05)


@pytest.mark.parametrize(
    ("case", "width"),
    [
        pytest.param(case, name, marks=[] if name == "column" else [pytest.mark.slow], id=f"{case}-{name}")
        for case in CASES
        for name in ("column", "page")
    ],
)
def test_a_figure_could_be_printed(case: str, width: str) -> None:
    figure = drawn(case, WIDTHS[width])
    assert figure.get_figwidth() == pytest.approx(WIDTHS[width])
    assert figure.get_figheight() < 10.3, "more than a page"
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    assert min(t.get_fontsize() for t in texts) >= 6
    stems = [t.get_text() for t in texts if re.search(r"[/\\]|\.(fine-tune|pretrain|parquet|txt)\b", t.get_text())]
    assert not stems, "file stems in place of names"
    boxes = [(t.get_text(), t.get_window_extent()) for ax in figure.axes for t in words(ax)]
    boxes += [(t.get_text(), t.get_window_extent()) for legend in figure.legends for t in legend.get_texts()]
    boxes = [(text, box.padded(-0.7)) for text, box in boxes]
    page = figure.bbox.padded(1.0)
    names = [slanted(ax) for ax in figure.axes]
    ends = [(text, text.get_window_extent()) for texts in names for text in texts]
    for line in names:  # as far apart as their letters are high
        apart = np.sin(np.pi / 4) * np.diff([text.get_window_extent().x1 for text in line])
        assert apart.size == 0 or apart.min() >= max(text.get_fontsize() for text in line) * figure.dpi / 72
    outside = [
        text for text, b in (*boxes, *ends) if b.x0 < page.x0 or b.x1 > page.x1 or b.y0 < page.y0 or b.y1 > page.y1
    ]
    assert not outside, "cut off"
    assert not [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)], "overlap"
    for ax in figure.axes:
        named = [line for line in ax.lines if str(line.get_label())[0] != "_"]
        curves = {line.get_label(): line for line in named if line.zorder >= CURVES}
        looks = {(x.get_color(), x.get_marker()) for x in curves.values()}
        assert len(looks) == len(curves) <= MOST
        assert figure.legends or not ax.get_legend_handles_labels()[0], "a line without a key"
        assert min(contrasts(ax), default=4.5) > 4.3, "a number on a cell of nearly its own colour"
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(ax.get_window_extent()) for ax in figure.axes)


def test_every_kind_of_figure_is_looked_at() -> None:
    assert {kind for kind, _, _ in CASES.values()} >= set(OURS)
