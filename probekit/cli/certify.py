"""``probekit certify``: do stored hidden states depend on the batch, and what does the model itself depend on?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.activations.options import CertifyOptions
from probekit.cli.show import console, say
from probekit.cli.terminal import show_table
from probekit.grid import Column, Grid

if TYPE_CHECKING:
    from probekit.activations.certify import Certificate
    from probekit.activations.foreign.against import Comparison

__all__ = ["certify"]

FEW = 6
"""How many arrays that were not compared are named."""


def certify(
    model: str,
    /,
    *,
    texts: Path | None = None,
    against: Path | None = None,
    layers: tuple[str, ...] | None = None,
    limit: int = 8,
    options: Annotated[CertifyOptions, Parameter(name="*")] = CertifyOptions(),
    json: bool = False,
) -> int:
    """Measure how much a model's hidden states depend on batch size, padding and attention implementation.

    Exit status 1 if the states that probekit stores depend on any of them. With --against, a sample of the activations
    that another program wrote is recomputed; exit status 1 if an array is not what it is said to be.

    Examples:

        probekit certify bert-base-uncased --dtype bfloat16

        probekit certify Qwen/Qwen3-8B --against hidden_states/ --layers 1,2,3,4 --dtype bfloat16

        probekit certify gpt2 --against activations.npz --limit 32 --json

    Parameters
    ----------
    model
        Hub id or folder of a model.
    texts
        A file of texts to measure on, one a line.
    against
        Activations that another program wrote: safetensors of vLLM's ExampleHiddenStatesConnector, .npz or .safetensors
        with an array for each site, or a folder of SAELens.
    layers
        The layers in vLLM's files, or of one array hidden_states, which do not name them: 1,2,3,4. The default finds
        them.
    limit
        With --against: how many texts to recompute.
    json
        Print the certificate as JSON.
    """
    from json import dumps

    import probekit

    certificate = probekit.certify(model, texts, against=against, layers=layers, limit=limit, options=options)
    if json:
        say(dumps(certificate.to_json(), indent=2))
    elif against is None:
        _show(certificate)
    else:
        _show_comparison(certificate)
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


def _show_comparison(found: Comparison) -> None:
    title = f"{found.path} · {found.format} · {found.model} · {found.spec['dtype']} · {found.spec['device']}"
    columns = [
        Column("array", align="left", key=True),
        Column("says", align="left"),
        *map(Column, ("largest difference", "relative", "tolerance")),
        Column("verdict", align="left", wrap=True),
    ]
    lines = [
        [f.array, f.said, _number(f.absolute), _number(f.relative), f"{f.tolerance:.0e}", f.verdict] for f in found
    ]
    show_table(Grid(columns, lines, title, {(i, len(columns) - 1) for i, f in enumerate(found) if not f.passed}))
    console().print(f"{found.texts} of {found.of} texts, {found.pieces} pieces: {found.verdict}.")
    if found.skipped:
        more = f" and {len(found.skipped) - FEW} more" if len(found.skipped) > FEW else ""
        console().print(f"Not compared, since the names stand for no site: {', '.join(found.skipped[:FEW])}{more}.")


def _number(value: float) -> str:
    return "" if value != value else "0" if value == 0 else f"{value:.1e}"
