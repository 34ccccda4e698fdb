"""``probekit certify``: do stored hidden states depend on the batch, and what does the model itself depend on?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.activations.options import CertifyOptions
from probekit.cli.show import console, say
from probekit.cli.terminal import show_table
from probekit.tables.grid import Column, Grid

if TYPE_CHECKING:
    from probekit.activations.certify import Certificate

__all__ = ["certify"]


def certify(
    model: str,
    /,
    *,
    texts: Path | None = None,
    options: Annotated[CertifyOptions, Parameter(name="*")] = CertifyOptions(),
    json: bool = False,
) -> int:
    """Measure how much a model's hidden states depend on batch size, padding and attention implementation.

    Exit status 1 if the states that probekit stores depend on any of them.

    Example: `probekit certify bert-base-uncased --dtype bfloat16`

    Parameters
    ----------
    model
        Hub id or folder of a model.
    texts
        A file of texts to measure on, one a line.
    json
        Print the certificate as JSON.
    """
    from json import dumps

    import probekit

    certificate = probekit.certify(model, texts, options=options)
    if json:
        say(dumps(certificate.to_json(), indent=2))
    else:
        _show(certificate)
    return 0 if certificate.passed else 1


def _show(certificate: Certificate) -> None:
    spec = certificate.spec
    title = f"{certificate.model} · {spec['dtype']} · {spec['device']} · {spec['path']}"
    columns = [
        Column("compared", align="left", key=True),
        *map(Column, ("largest difference", "relative")),
        Column("layer", align="left"),
        Column("verdict", align="left", wrap=True),
    ]
    lines = [[x.what, f"{x.absolute:.1e}", f"{x.relative:.1e}", x.layer, x.verdict] for x in certificate.lines]
    failed = {(i, len(columns) - 1) for i, line in enumerate(certificate.lines) if line.passed is False}
    show_table(Grid(columns, lines, title, failed))
    console().print(f"{certificate.texts} texts, {certificate.pieces} pieces: {certificate.verdict}.")
