"""``probekit certify``: does what is stored depend on the batch, and what does the model itself depend on?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.activations.options import CertifyOptions
from probekit.cli.show import console, say

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
    """Measure how far a model's hidden states depend on batch, padding and attention code; exit status 1 if ours do.

    Example: `probekit certify bert-base-uncased --dtype bfloat16`

    Parameters
    ----------
    model
        Hub id or folder of a model.
    texts
        Measure on the lines of this file.
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
    from rich.table import Table

    told = certificate.spec
    title = f"{certificate.model} · {told['dtype']} · {told['device']} · {told['path']}"
    table = Table(title=title, title_justify="left")
    for column in ("compared", "largest difference", "relative", "layer", "verdict"):
        table.add_column(column, justify="right" if column in ("largest difference", "relative") else "left")
    colours = {True: "green", False: "bold red", None: "yellow"}
    for line in certificate.lines:
        colour = "green" if line.passed is None and not line.verdict.startswith("depends") else colours[line.passed]
        table.add_row(
            line.what, f"{line.absolute:.1e}", f"{line.relative:.1e}", line.layer, f"[{colour}]{line.verdict}[/]"
        )
    console().print(table)
    console().print(f"{certificate.texts} texts, {certificate.pieces} pieces: {certificate.verdict}.")
