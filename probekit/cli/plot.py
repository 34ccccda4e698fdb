"""``probekit plot``: rows to figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from probekit.analysis import figures, load
from probekit.cli.made import help_of
from probekit.cli.show import say
from probekit.files import FIGURES
from probekit.plots.options import options_of

__all__ = ["app"]

app = App(name="plot", help="Draw results as figures (PDF, SVG, EPS, PNG).")

Out = Annotated[
    list[Path] | None,
    Parameter(
        help="The figure to write (.pdf, .svg, .eps or .png); may be repeated. By default a .pdf and a .png in "
        "figures/. A suggested caption is written next to it, as FIGURE.caption.txt."
    ),
]


def figure(described: Callable[[], None]) -> None:
    """Add the command that draws the kind of figure after which ``described`` is named; its docstring is the help."""
    _add(described.__name__.replace("_", "-"), described.__doc__ or "")


def _add(kind: str, described: str) -> None:
    """Add the command that draws a kind of figure."""
    options_type = options_of(kind)

    def draw(first: str, /, *rows: str, out: Out = None, options: Any = options_type()) -> None:
        import probekit
        from probekit.cli.patterns import expand
        from probekit.plots.caption import caption_path

        name = f"transfer-{kind}" if getattr(options, "transfer", False) else kind
        files = tuple(out or (FIGURES / f"{name}.pdf", FIGURES / f"{name}.png"))
        values = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
        probekit.plot(kind, *(path for pattern in (first, *rows) for path in expand(pattern)), out=files, **values)
        for path in (*files, *dict.fromkeys(map(caption_path, files))):
            say(path)

    draw.__annotations__["options"] = Annotated[options_type, Parameter(name="*")]
    draw.__doc__ = described
    app.command(draw, name=kind)


@figure
def layers() -> None:
    """Plot a metric by layer, with its controls: one panel per task, one curve per model.

    The grey band of probes shows what permuted labels reach with the same predictions, from their mean to p = 0.05;
    that of other analyses the range of shuffled labels, as --shuffled does for probes trained on them; hatched bands
    are control tasks, horizontal lines baselines without a model. A hollow marker is a layer not shown to be above
    noise (p > 0.05, corrected over layers and curves as in the verdict; in rows without p, its interval reaches the
    noise). A half-filled marker is above noise, but its interval reaches the control task; for span F1 no control task
    is drawn. Several seeds (of random weights or training) are thin lines in one colour, with one legend entry and
    without intervals. Each estimator of mutual information has its own panel; a cross marks a layer whose information
    is undetermined, a dotted line the values that are possible.

    Examples:

        probekit plot layers cola.parquet sst2.parquet --out layers.pdf --out layers.png

        probekit plot layers tags.parquet --metric "selectivity(token-accuracy)"

        probekit plot layers cola.parquet --summary cola-summary.parquet

        probekit plot layers cola.parquet sst2.parquet --width text --out figure1.pdf

        probekit plot layers trees.parquet --metric uuas

        probekit plot layers pairs.parquet --by phenomenon

    Parameters
    ----------
    first
        Rows that probekit probe, shift, mi, mdl, pairs, similarity, movement, geometry or structural wrote (.parquet,
        .csv).
    rows
        Further rows.
    """


@figure
def differences() -> None:
    """Plot paired differences by layer, one panel per task.

    The thick interval is for one layer, the thin interval for all layers at once (simultaneous).

    Examples:

        probekit plot differences tuned-minus-pretrained.parquet --out differences.pdf

    Parameters
    ----------
    first
        Rows that probekit compare wrote.
    rows
        Further rows.
    """


@figure
def trajectory() -> None:
    """Plot a metric by layer and training step as a heat map, one panel per task and run.

    Step 0 is the pretrained model; if the run saved no step 0, rows of the pretrained model without a step are used. A
    dot marks the best layer of each step. Hatched cells are not above noise (permuted labels of probes, shuffled
    labels, permuted examples). Rows of similarity and movement show how far each layer is from the first cache.

    Examples:

        probekit cache-activations --model RUN/step-* --task cola --split train

        probekit cache-activations --model RUN/step-* --task cola --split dev

        probekit probe 'data_cache/cola.train.*-RUN-step-*' 'data_cache/cola.dev.*-RUN-step-*' --out steps.parquet

        probekit plot trajectory steps.parquet --out trajectory.pdf

        probekit plot trajectory steps.parquet pretrained.parquet --metric log-loss

    Parameters
    ----------
    first
        Rows that probekit probe, mi, similarity or movement wrote for the checkpoints of runs (.parquet, .csv).
    rows
        Further rows.
    """


@figure
def mix() -> None:
    """Plot the weight of each layer in the final scalar mix: one panel per task, one curve per head.

    Runs that differ only in the seed are one curve, their mean, with a band from the smallest to the largest weight.
    The dotted line marks equal weights. For the weights by training step: probekit plot trajectory --metric mix-weight.

    Examples:

        probekit plot mix cola-run/rows.parquet mrpc-run/rows.parquet --out mix.pdf

    Parameters
    ----------
    first
        Rows of feature-extraction runs, or of probekit edges (.parquet, .csv).
    rows
        Further rows.
    """


@figure
def learning() -> None:
    """Plot learning curves: results against the number of training examples, one panel per task, one curve per model.

    A point is the main metric of a run, or its mean over seeds. The horizontal axis is logarithmic.

    --over pretraining counts the examples of the encoder's pretraining instead, of all objectives together, and draws
    one curve per set of objectives, as in Figure 2 of Bowman et al. (2018). Encoders without rows of pretraining, such
    as an untrained one, are dashed lines. Tasks that some encoders lack are left
    out; one more panel shows the mean of the GLUE tasks. Bars and bands are one standard deviation over seeds.

    Examples:

        probekit train --task sst2 --model MODEL --limit 300 --out sst2-300

        probekit train --task sst2 --model MODEL --limit 3000 --out sst2-3000

        probekit plot learning 'sst2-*/rows.parquet' --out learning.pdf

        probekit plot learning 'encoders/*/rows.parquet' 'targets/*/rows.parquet' --over pretraining

    Parameters
    ----------
    first
        Rows of training runs (.parquet, .csv), for --over pretraining also those of probekit pretrain-encoder.
    rows
        Further rows.
    """


@figure
def expected() -> None:
    """Plot the expected dev metric of the best of n trials of a search (Dodge et al. 2019): one panel per task.

    Bands are one standard deviation of the best of n trials. The expectation holds for settings that are drawn
    independently: probekit search --sampler random.

    Examples:

        probekit search mine.toml --sampler random --trials 30 --out searches/mine

        probekit plot expected searches/*/rows.parquet --out expected.pdf

    Parameters
    ----------
    first
        Rows of searches (.parquet, .csv).
    rows
        Further rows.
    """


@figure
def score_correlations() -> None:
    """Plot how well scores of encoders foretell their results: a cell for each score and target task, and the mean.

    Examples:

        probekit table score-correlations 'rows/*.parquet' 'runs/*/rows.parquet' --rows-out foretold.parquet

        probekit plot score-correlations foretold.parquet --out foretold.pdf

    Parameters
    ----------
    first
        Rows that probekit table score-correlations wrote (.parquet, .csv).
    rows
        Further rows.
    """


@figure
def domains() -> None:
    """Plot distances between domains: heat map, dendrogram, terms that contribute most, effect of sample size.

    The diagonal of the heat map compares two random halves of one domain. Hatched cells are no larger than sampling
    noise. Each kind of row in the files gets a panel.

    Examples:

        probekit plot domains domains.parquet --out domains.pdf --metric js-distance

    Parameters
    ----------
    first
        Rows that probekit domains wrote.
    rows
        Further rows.
    """


@figure
def relation() -> None:
    """Plot metrics by domain against the distance of the domain, with their correlation.

    Examples:

        probekit plot relation table6.parquet --out relation.pdf

        probekit plot relation table6.parquet --transfer

    Parameters
    ----------
    first
        Rows that probekit table domains --rows-out wrote.
    rows
        Further rows.
    """


@figure
def transfer() -> None:
    """Plot transfer between domains: the metric by training and evaluation domain, one heat map per regime.

    Examples:

        probekit plot transfer table6.parquet --out transfer.pdf

    Parameters
    ----------
    first
        Rows that probekit table domains --rows-out wrote.
    rows
        Further rows.
    """


@figure
def dendrogram() -> None:
    """Plot models as a tree by the similarity of their layers.

    The distance of two models is 1 minus the mean similarity of their same layers; clusters are joined by average
    linkage.

    Examples:

        probekit similarity a.h5 b.h5 c.h5 d.h5 --against all --out models.parquet

        probekit plot dendrogram models.parquet --out models.pdf

    Parameters
    ----------
    first
        Rows that probekit similarity --against all wrote (.parquet, .csv).
    rows
        Further rows.
    """


@figure
def gains() -> None:
    """Plot the gain of each layer's probe against how far the layer moved: do layers that move more learn more?

    Filled points differ from the reference (p <= 0.05, corrected over layers). Lines join the checkpoints of a layer.

    Examples:

        probekit similarity pretrained.dev.h5 tuned.dev.h5 --out similarity.parquet

        probekit compare tuned.parquet pretrained.parquet --out gains.parquet

        probekit plot gains gains.parquet similarity.parquet --out figure.pdf

    Parameters
    ----------
    first
        Rows that probekit compare TUNED REFERENCE wrote: the tuned model or its checkpoints, minus the reference.
    rows
        Rows of probekit similarity REFERENCE TUNED or movement REFERENCE TUNED, for the same models.
    """


@figure
def adaptation() -> None:
    """Plot what each way to adapt does to a model and its layers: a column per training task, a colour per way.

    From above: the metric of the kept weights against the number of trained weights; the probe of each layer on the
    task, next to the pretrained layers (grey); the similarity of each layer to the pretrained one (linear CKA, or the
    relative distance); and forgetting: probes of the other tasks, minus those of the pretrained layers. A way is the
    --variant of the runs. Panels without rows are left out.

    Examples:

        probekit plot adaptation 'runs/*/rows.parquet' --out adaptation.pdf

        probekit plot adaptation 'runs/*/rows.parquet' 'rows/*.parquet' --width text --out adaptation.pdf

    Parameters
    ----------
    first
        Rows of probekit train.
    rows
        Rows of probekit probe on caches of the pretrained model and the runs, and of probekit similarity PRETRAINED RUN
        or movement PRETRAINED RUN.
    """


@figure
def scoreboard() -> None:
    """Plot tasks by layer, each between its control (0) and its ceiling (1): one heat map for each model.

    A frame marks the layer that train chooses (dashed: the best on dev, where train chooses none). Hatched cells are
    not shown to be above the control.

    Examples:

        probekit plot scoreboard suites/syntax/rows/scoreboard.parquet --out syntax.pdf

    Parameters
    ----------
    first
        Rows that probekit scoreboard or probekit suite wrote (.parquet, .csv).
    rows
        Further rows.
    """


@figure
def shift() -> None:
    """Plot probes of one data set on others: a heat map for each model and probe, at one layer.

    A frame marks a cell that differs from the diagonal of its column, a probe of the same data set (p <= 0.05, paired,
    corrected). probekit plot layers draws the same rows by layer, a curve for each data set that probes were fitted on.

    Examples:

        probekit plot shift shift.parquet --out shift.pdf

        probekit plot shift shift.parquet --metric recall-at-rate --layer 6

        probekit plot layers shift.parquet --metric auroc

    Parameters
    ----------
    first
        Rows that probekit shift wrote (.parquet, .csv).
    rows
        Further rows.
    """


for _kind, _figure in figures().items():
    _rows = f"first\n    Rows that probekit {_kind} wrote (.parquet, .csv).\nrows\n    Further rows."
    _add(_kind, f"{help_of(load(_figure.draw).__doc__)}\n{_rows}")
