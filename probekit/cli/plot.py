"""``probekit plot``: rows to figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from probekit.files import FIGURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from probekit.plots.kinds import Kind

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Draw rows as figures, vector and bitmap.")

Out = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        help="A figure, by suffix .pdf, .svg, .eps or .png; may be given several times. "
        "A .pdf and a .png in figures/ without it.",
    ),
]
Columns = Annotated[int, typer.Option("--columns", min=1, help="Panels side by side, at most.")]


def _inches(text: str) -> float:
    from probekit.plots import WIDTHS

    try:
        width = WIDTHS.get(text) or float(text)
    except ValueError:
        width = 0.0
    if not 1 <= width <= 100:
        raise typer.BadParameter(f"give {', '.join(WIDTHS)} or inches, from 1 to 100, not {text!r}.")
    return width


Width = Annotated[
    float | None,
    typer.Option(
        "--width",
        parser=_inches,
        metavar="column|text|INCHES",
        help="Of the figure as it is printed: of a column (3.03 in) or of the text (6.3 in) of a two-column paper, "
        "or in inches. Letters keep their size, 7 to 10 points. As wide as its panels without it.",
    ),
]
Dpi = Annotated[int, typer.Option("--dpi", min=30, help="Of bitmaps.")]


@app.command("layers")
def layers_command(
    rows: Annotated[
        list[Path], typer.Argument(metavar="ROWS…", help="Rows that probekit probe, mi or mdl wrote (.parquet, .csv).")
    ],
    out: Out = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="Such as log-loss or selectivity(accuracy); the tasks' own without it."),
    ] = None,
    summary: Annotated[
        list[Path] | None,
        typer.Option(
            "--summary", help="Rows that probekit summary wrote, drawn under the curves; may be given several times."
        ),
    ] = None,
    columns: Columns = 4,
    width: Width = None,
    dpi: Dpi = 300,
) -> None:
    """A metric by layer, one panel a task, one curve a model, over its controls.

    Grey bands are where shuffled labels and control tasks fall, horizontal lines what needs no model. A marker is
    hollow where the layer's interval reaches noise. Several seeds of one kind (random weights, runs named ….0, ….1) are
    thin lines of one colour with one entry in the legend, without intervals. Estimators of mutual information have
    panels of their own; an open diamond is a layer whose information is undetermined, dotted over what is possible.

    Examples:

        probekit plot layers cola.parquet sst2.parquet --out layers.pdf --out layers.png

        probekit plot layers tags.parquet --metric "selectivity(accuracy)"

        probekit plot layers cola.parquet --summary cola-summary.parquet

        probekit plot layers cola.parquet sst2.parquet --width text --out figure1.pdf
    """  # fmt: skip
    from probekit.plots import layer_panels
    from probekit.plots.kinds import LAYERED
    from probekit.rows import read_rows

    under, found = read_rows(*summary) if summary else None, _read(rows, *LAYERED)
    _save(layer_panels(found, metric=metric, summary=under, columns=columns, width=width), out, "layers", dpi)


@app.command("differences")
def differences_command(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS…", help="Rows that probekit compare wrote.")],
    out: Out = None,
    level: Annotated[
        float, typer.Option("--level", min=0, max=1, help="Hollow where the corrected p-value is above it.")
    ] = 0.05,
    columns: Columns = 4,
    width: Width = None,
    dpi: Dpi = 300,
) -> None:
    """Paired differences by layer, one panel a task: thick the interval of one layer, thin that of all at once.

    Examples:

        probekit plot differences tuned-minus-pretrained.parquet --out differences.pdf
    """
    from probekit.plots import difference_panels
    from probekit.plots.kinds import Kind

    _save(
        difference_panels(_read(rows, Kind.DIFFERENCES), level=level, columns=columns, width=width),
        out,
        "differences",
        dpi,
    )


@app.command("trajectory")
def trajectory_command(
    rows: Annotated[
        list[Path],
        typer.Argument(
            metavar="ROWS…", help="Rows that probekit probe or mi wrote of the checkpoints of runs (.parquet, .csv)."
        ),
    ],
    out: Out = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="Such as log-loss or selectivity(accuracy); the tasks' own without it."),
    ] = None,
    columns: Columns = 3,
    width: Width = None,
    dpi: Dpi = 300,
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
    """
    from probekit.plots import trajectory_panels
    from probekit.plots.kinds import LAYERED, Kind

    _save(
        trajectory_panels(_read(rows, *LAYERED, Kind.TRAINING), metric=metric, columns=columns, width=width),
        out,
        "trajectory",
        dpi,
    )


@app.command("mix")
def mix_command(
    rows: Annotated[
        list[Path], typer.Argument(metavar="ROWS…", help="Rows of runs of feature extraction (.parquet, .csv).")
    ],
    out: Out = None,
    columns: Columns = 4,
    width: Width = None,
    dpi: Dpi = 300,
) -> None:
    """The weight of each layer in the scalar mix that training ended with, one panel a task, one curve a head.

    Runs that differ in the seed alone are one curve, their mean, over a band from the least to the greatest; the
    dotted line is the even mix. Weights by training step: probekit plot trajectory --metric mix-weight.

    Examples:

        probekit plot mix cola-run/rows.parquet mrpc-run/rows.parquet --out mix.pdf
    """
    from probekit.plots import mix_panels
    from probekit.plots.kinds import Kind

    _save(mix_panels(_read(rows, Kind.TRAINING), columns=columns, width=width), out, "mix", dpi)


@app.command("domains")
def domains_command(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS…", help="Rows that probekit domains wrote.")],
    out: Out = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="Of the map and the tree, such as js-distance; the first without it.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Terms of each pair.")] = 20,
    width: Width = None,
    dpi: Dpi = 300,
) -> None:
    """How far domains are from each other: a map and a tree, the terms that make the difference, the effect of size.

    On the diagonal of the map are two random halves of one domain; cells are hatched where sampling alone gives as
    much. There is a panel for each kind of rows that the files hold.

    Examples:

        probekit plot domains domains.parquet --out domains.pdf --metric js-distance
    """
    from probekit.plots import domain_panels
    from probekit.plots.kinds import Kind

    _save(domain_panels(_read(rows, Kind.DOMAINS), metric=metric, top=top, width=width), out, "domains", dpi)


@app.command("relation")
def relation_command(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS…", help="Rows that probekit table domains --rows wrote.")],
    out: Out = None,
    transfer: Annotated[
        bool, typer.Option("--transfer", help="What is lost by training on another domain, a point for each pair.")
    ] = False,
    columns: Columns = 3,
    width: Width = None,
    dpi: Dpi = 300,
) -> None:
    """Metrics by domain against the distance of the domain, with their correlations.

    Examples:

        probekit plot relation table6.parquet --out relation.pdf

        probekit plot relation table6.parquet --transfer
    """
    from probekit.plots import relation_panels
    from probekit.plots.kinds import Kind
    from probekit.plots.relation import relation_rows

    points, told = relation_rows(_read(rows, Kind.RELATION), transfer=transfer)
    name = "transfer-relation" if transfer else "relation"
    _save(relation_panels(points, told, columns=columns, width=width), out, name, dpi)


@app.command("transfer")
def transfer_command(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS…", help="Rows that probekit table domains --rows wrote.")],
    out: Out = None,
    columns: Columns = 3,
    width: Width = None,
    dpi: Dpi = 300,
) -> None:
    """What training on one domain is worth on each other, a map for each regime.

    Examples:

        probekit plot transfer table6.parquet --out transfer.pdf
    """
    from probekit.plots import transfer_panels
    from probekit.plots.kinds import Kind
    from probekit.plots.relation import transfer_rows

    cells = transfer_rows(_read(rows, Kind.RELATION))
    _save(transfer_panels(cells, columns=columns, width=width), out, "transfer", dpi)


def _read(paths: list[Path], *kinds: Kind) -> pd.DataFrame:
    """The rows of some kinds of analysis, whatever else there is in the files; all where there are none of these, for
    which plots have words."""
    import pandas as pd

    from probekit.plots.kinds import by_kind
    from probekit.rows import read_rows

    rows = read_rows(*paths)
    found = [part for kind, part in by_kind(rows).items() if kind in kinds]
    return pd.concat(found).sort_index() if found else rows


def _save(figure: Figure, out: list[Path] | None, name: str, dpi: int) -> None:
    from probekit.plots import save

    for path in save(figure, out or [FIGURES / f"{name}.pdf", FIGURES / f"{name}.png"], dpi=dpi):
        typer.echo(str(path))
