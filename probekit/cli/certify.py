"""``probekit certify``: does what is stored depend on the batch, and what does the model itself depend on?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["certify_command"]


def certify_command(
    model: Annotated[str, typer.Argument(help="Hub id or folder of a model.")],
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    revision: Annotated[str | None, typer.Option(help="Revision of the model on the hub.")] = None,
    random_weights: Annotated[int | None, typer.Option(help="Re-initialise the model with this seed.")] = None,
    texts: Annotated[Path | None, typer.Option(help="Measure on the lines of this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Measure how far a model's hidden states depend on batch, padding and attention code; exit status 1 if ours do."""
    import json

    from rich.console import Console
    from rich.table import Table

    from probekit.activations.certify import certify
    from probekit.errors import DataError

    lines = None
    if texts is not None:
        try:
            lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot be read as UTF-8 text ({error})", file=texts) from error
    certificate = certify(model, lines, dtype=dtype, device=device, revision=revision, random_weights=random_weights)
    console = Console()
    if as_json:
        typer.echo(json.dumps(certificate.to_json(), indent=2))
    else:
        told = certificate.spec
        table = Table(
            title=f"{certificate.model} · {told['dtype']} · {told['device']} · {told['path']}", title_justify="left"
        )
        for column in ("compared", "largest difference", "relative", "layer", "verdict"):
            table.add_column(column, justify="right" if column in ("largest difference", "relative") else "left")
        colours = {True: "green", False: "bold red", None: "yellow"}
        for line in certificate.lines:
            colour = "green" if line.passed is None and not line.verdict.startswith("depends") else colours[line.passed]
            table.add_row(
                line.what, f"{line.absolute:.1e}", f"{line.relative:.1e}", line.layer, f"[{colour}]{line.verdict}[/]"
            )
        console.print(table)
        console.print(f"{certificate.texts} texts, {certificate.pieces} pieces: {certificate.verdict}.")
    if not certificate.passed:
        raise typer.Exit(1)
