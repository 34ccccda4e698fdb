"""What the commands that check a model print: each comparison or site, with what it proves."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

from probekit.cli.made import made
from probekit.cli.show import console, say
from probekit.cli.terminal import show_table
from probekit.grid import Column, Grid

if TYPE_CHECKING:
    from probekit.activations.certify import Certificate
    from probekit.activations.foreign.against import Comparison
    from probekit.models.sites.report import SiteLine, SiteReport

FEW = 6
"""How many arrays that were not compared are named."""


@made()
def certify(certificate: Certificate | Comparison, *, json: bool = False) -> int:
    """The comparisons; exit status 1 if one fails.

    Parameters
    ----------
    json
        Print the certificate as JSON.
    """
    from probekit.activations.certify import Certificate

    if json:
        say(dumps(certificate.to_json(), indent=2))
    elif isinstance(certificate, Certificate):
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


def _number(value: float | None) -> str:
    return "" if value is None or value != value else "0" if value == 0 else f"{value:.1e}"


@made("prove_sites")
def sites(report: SiteReport, *, json: bool = False) -> int:
    """The sites; exit status 1 if the identity of one does not hold.

    Parameters
    ----------
    json
        Print the sites as JSON.
    """
    if json:
        say(dumps(report.to_json(), indent=2))
        return 0 if report.passed else 1
    spec, lines = report.spec, report.lines
    title = f"{report.model} · {report.blocks} blocks · {spec['dtype']} · {spec['device']} · {spec['path']}"
    columns = [
        Column("site", align="left", key=True),
        Column("blocks"),
        Column("width"),
        Column("error"),
        Column("proven by", align="left", wrap=True),
    ]
    rows = [[line.site, _blocks(line), str(line.width or ""), _number(line.error), _proof(line)] for line in lines]
    failed = {(i, len(columns) - 1) for i, line in enumerate(lines) if line.refusal and not line.lacking}
    show_table(Grid(columns, rows, title, failed))
    proven = len({line.site for line in lines if not line.refusal})
    console().print(f"{proven} sites are proven. A site in a block is written site.block: resid_post.0 is layer 1.")
    return 0 if report.passed else 1


def _blocks(line: SiteLine) -> str:
    """The blocks as ranges: "0–11", "0, 2"."""
    ranges: list[list[int]] = []
    for number in line.blocks:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("–".join(map(str, ends)) for ends in ranges)


def _proof(line: SiteLine) -> str:
    if line.refusal:
        return f"{'none' if line.lacking else 'refused'}: {line.refusal}"
    return line.identity + (" (handed out as a copy: the model overwrites it)" if line.copied else "")
