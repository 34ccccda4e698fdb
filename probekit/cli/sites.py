"""``probekit sites``: the points of a model where vectors can be read, each with what proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.cli.show import console, say
from probekit.cli.terminal import show_table
from probekit.grid import Column, Grid
from probekit.models.options import SiteOptions

if TYPE_CHECKING:
    from probekit.models.sites.report import SiteLine, SiteReport

__all__ = ["sites"]


def sites(
    model: str,
    /,
    *,
    options: Annotated[SiteOptions, Parameter(name="*")] = SiteOptions(),
    json: bool = False,
) -> int:
    """Show the sites of a transformer (residual stream, attention, MLP, heads), and what proves each.

    The model reads two random sequences, and each site must satisfy an identity, such as resid_pre + attn_out_post =
    resid_mid; its error is relative. Blocks are counted from 0: resid_post.l is layer l + 1. Exit status 1 if a site
    was found whose identity does not hold.

    Examples:

        probekit sites gpt2

        probekit sites bert-base-uncased --dtype bfloat16

        probekit sites google-t5/t5-small --decoder

        probekit sites ./my-llama --random-weights 0 --json

    Parameters
    ----------
    model
        Hub id or folder of a transformer.
    json
        Print the sites as JSON.
    """
    from json import dumps

    import probekit

    report = probekit.prove_sites(model, options=options)
    if json:
        say(dumps(report.to_json(), indent=2))
    else:
        _show(report)
    return 0 if report.passed else 1


def _show(report: SiteReport) -> None:
    spec, lines = report.spec, report.lines
    title = f"{report.model} · {report.blocks} blocks · {spec['dtype']} · {spec['device']} · {spec['path']}"
    columns = [
        Column("site", align="left", key=True),
        Column("blocks"),
        Column("width"),
        Column("error"),
        Column("proven by", align="left", wrap=True),
    ]
    rows = [[line.site, _blocks(line), str(line.width or ""), _error(line.error), _verdict(line)] for line in lines]
    failed = {(i, len(columns) - 1) for i, line in enumerate(lines) if line.refusal and not line.lacking}
    show_table(Grid(columns, rows, title, failed))
    proven = len({line.site for line in lines if not line.refusal})
    console().print(f"{proven} sites are proven. A site in a block is written site.block: resid_post.0 is layer 1.")


def _blocks(line: SiteLine) -> str:
    """The blocks as ranges: "0–11", "0, 2"."""
    ranges: list[list[int]] = []
    for number in line.blocks:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("–".join(map(str, ends)) for ends in ranges)


def _error(error: float | None) -> str:
    return "" if error is None else "0" if error == 0 else f"{error:.1e}"


def _verdict(line: SiteLine) -> str:
    if line.refusal:
        return f"{'none' if line.lacking else 'refused'}: {line.refusal}"
    return line.identity + (" (handed out as a copy: the model overwrites it)" if line.copied else "")
