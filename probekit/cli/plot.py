"""``probekit plot``: rows to figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from probekit.cli.show import say
from probekit.files import FIGURES
from probekit.plots.options import options_of

__all__ = ["app"]

app = App(name="plot", help="Draw rows as figures, vector and bitmap.")

Layers, Differences, Trajectory, Mix, Domains, Relation, Transfer = map(
    options_of, ("layers", "differences", "trajectory", "mix", "domains", "relation", "transfer")
)
ALL = Parameter(name="*")
Out = Annotated[
    list[Path] | None,
    Parameter(
        help="A figure, by suffix .pdf, .svg, .eps or .png; may be given several times. "
        "A .pdf and a .png in figures/ without it. A suggested caption stands beside, FIGURE.caption.txt."
    ),
]


@app.command
def layers(
    first: str,
    /,
    *rows: str,
    out: Out = None,
    options: Annotated[Layers, ALL] = Layers(),  # type: ignore[valid-type]
) -> None:
    """A metric by layer, one panel a task, one curve a model, over its controls.

    Grey bands are where shuffled labels and control tasks fall, horizontal lines what needs no model. A marker is
    hollow where the layer is not above noise (p > 0.05, corrected over layers; of older rows where its interval reaches
    noise), half filled where it reaches the control task, which is not drawn for span F1. Several seeds of one kind (of
    random weights, of runs) are thin lines of one colour with one entry in the legend, without intervals. Estimators of
    mutual information have panels of their own; a cross is a layer whose information is undetermined, dotted
    over what is possible.

    Examples:

        probekit plot layers cola.parquet sst2.parquet --out layers.pdf --out layers.png

        probekit plot layers tags.parquet --metric "selectivity(accuracy)"

        probekit plot layers cola.parquet --summary cola-summary.parquet

        probekit plot layers cola.parquet sst2.parquet --width text --out figure1.pdf

    Parameters
    ----------
    first
        Rows that probekit probe, mi or mdl wrote (.parquet, .csv).
    rows
        Further ones.
    """
    _draw("layers", (first, *rows), out, options)


@app.command
def differences(
    first: str,
    /,
    *rows: str,
    out: Out = None,
    options: Annotated[Differences, ALL] = Differences(),  # type: ignore[valid-type]
) -> None:
    """Paired differences by layer, one panel a task: thick the interval of one layer, thin that of all at once.

    Examples:

        probekit plot differences tuned-minus-pretrained.parquet --out differences.pdf

    Parameters
    ----------
    first
        Rows that probekit compare wrote.
    rows
        Further ones.
    """
    _draw("differences", (first, *rows), out, options)


@app.command
def trajectory(
    first: str,
    /,
    *rows: str,
    out: Out = None,
    options: Annotated[Trajectory, ALL] = Trajectory(),  # type: ignore[valid-type]
) -> None:
    """A metric by layer and training step as a heat map, one panel a task and run.

    Step 0 is the pretrained model; rows of it that have no step stand there, where the run kept no step 0. A dot marks
    the best layer of each step. Cells are hatched that are not above noise, as far as the rows hold shuffled labels.

    Examples:

        probekit cache-activations --model RUN/step-* --task cola --split train

        probekit cache-activations --model RUN/step-* --task cola --split dev

        probekit probe 'data_cache/cola.train.*-RUN-step-*' 'data_cache/cola.dev.*-RUN-step-*' --out steps.parquet

        probekit plot trajectory steps.parquet --out trajectory.pdf

        probekit plot trajectory steps.parquet pretrained.parquet --metric log-loss

    Parameters
    ----------
    first
        Rows that probekit probe or mi wrote of the checkpoints of runs (.parquet, .csv).
    rows
        Further ones.
    """
    _draw("trajectory", (first, *rows), out, options)


@app.command
def mix(first: str, /, *rows: str, out: Out = None, options: Annotated[Mix, ALL] = Mix()) -> None:  # type: ignore[valid-type]
    """The weight of each layer in the scalar mix that training ended with, one panel a task, one curve a head.

    Runs that differ in the seed alone are one curve, their mean, over a band from the least to the greatest; the
    dotted line is the even mix. Weights by training step: probekit plot trajectory --metric mix-weight.

    Examples:

        probekit plot mix cola-run/rows.parquet mrpc-run/rows.parquet --out mix.pdf

    Parameters
    ----------
    first
        Rows of runs of feature extraction (.parquet, .csv).
    rows
        Further ones.
    """
    _draw("mix", (first, *rows), out, options)


@app.command
def domains(
    first: str,
    /,
    *rows: str,
    out: Out = None,
    options: Annotated[Domains, ALL] = Domains(),  # type: ignore[valid-type]
) -> None:
    """How far domains are from each other: a map and a tree, the terms that make the difference, the effect of size.

    On the diagonal of the map are two random halves of one domain; cells are hatched where sampling alone gives as
    much. There is a panel for each kind of rows that the files hold.

    Examples:

        probekit plot domains domains.parquet --out domains.pdf --metric js-distance

    Parameters
    ----------
    first
        Rows that probekit domains wrote.
    rows
        Further ones.
    """
    _draw("domains", (first, *rows), out, options)


@app.command
def relation(
    first: str,
    /,
    *rows: str,
    out: Out = None,
    options: Annotated[Relation, ALL] = Relation(),  # type: ignore[valid-type]
) -> None:
    """Metrics by domain against the distance of the domain, with their correlations.

    Examples:

        probekit plot relation table6.parquet --out relation.pdf

        probekit plot relation table6.parquet --transfer

    Parameters
    ----------
    first
        Rows that probekit table domains --rows-out wrote.
    rows
        Further ones.
    """
    _draw("relation", (first, *rows), out, options)


@app.command
def transfer(
    first: str,
    /,
    *rows: str,
    out: Out = None,
    options: Annotated[Transfer, ALL] = Transfer(),  # type: ignore[valid-type]
) -> None:
    """What training on one domain is worth on each other, a map for each regime.

    Examples:

        probekit plot transfer table6.parquet --out transfer.pdf

    Parameters
    ----------
    first
        Rows that probekit table domains --rows-out wrote.
    rows
        Further ones.
    """
    _draw("transfer", (first, *rows), out, options)


def _draw(kind: str, rows: tuple[str, ...], out: list[Path] | None, options: Any) -> None:
    import dataclasses

    import probekit
    from probekit.plots.caption import caption_path

    name = f"transfer-{kind}" if getattr(options, "transfer", False) else kind
    files = tuple(out or (FIGURES / f"{name}.pdf", FIGURES / f"{name}.png"))
    told = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    probekit.plot(kind, *rows, out=files, **told)
    for path in (*files, *dict.fromkeys(map(caption_path, files))):
        say(path)
