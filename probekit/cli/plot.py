"""``probekit plot``: rows to figures, a command for each kind of figure."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter as P
from inspect import Signature
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from probekit.cli.made import help_of
from probekit.cli.patterns import expand
from probekit.cli.show import say
from probekit.files import FIGURES
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plugins import added

app = App(name="plot", help="Draw results as figures (PDF, SVG, EPS, PNG).")
OUT = (
    "The figure to write (.pdf, .svg, .eps or .png); may be repeated. By default a .pdf and a .png in figures/. A "
    "suggested caption is written next to it, as FIGURE.caption.txt."
)


def command(kind: str, figure: FigureKind) -> Callable[..., None]:
    """The command that draws a kind of figure: it takes the options of the kind, and says which files it wrote."""
    fields = PlotOptions.__dataclass_fields__

    def draw(first: str, *rows: str, out: list[Path] | None = None, **options: Any) -> None:
        import probekit
        from probekit.plots.figure import caption_path

        name = f"transfer-{kind}" if options.get("transfer") else kind
        files = tuple(out or (FIGURES / f"{name}.pdf", FIGURES / f"{name}.png"))
        probekit.plot(kind, *(path for pattern in (first, *rows) for path in expand(pattern)), out=files, **options)
        for path in (*files, *dict.fromkeys(map(caption_path, files))):
            say(path)

    known = [P("first", P.POSITIONAL_ONLY, annotation=str), P("rows", P.VAR_POSITIONAL, annotation=str)]
    known += [_option("out", list[Path] | None, None, OUT, name=("--out", "-o"))]
    for name in figure.options:
        described = figure.metric if name == "metric" and figure.metric else fields[name].metadata["help"]
        known += [_option(name, fields[name].type, fields[name].default, described)]
    vars(draw)["__signature__"] = Signature(known)
    draw.__annotations__ = {p.name: p.annotation for p in known}
    about = help_of(figure.draw.__doc__ or "", ["rows"]).replace("\nrows\n", "\nfirst\n")
    draw.__doc__ = f"{about}\nrows\n    Further rows."
    return draw


def _option(key: str, kind: Any, default: Any, described: str, **more: Any) -> P:
    return P(key, P.KEYWORD_ONLY, default=default, annotation=Annotated[kind, Parameter(help=described, **more)])


for _kind, _figure in added("probekit.figures", FigureKind).items():
    app.command(command(_kind, _figure), name=_kind)
