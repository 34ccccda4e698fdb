"""The page: rows, cards, figures and texts brought together, and written whole."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from probekit.errors import DataError, UsageError
from probekit.report import cautions, figures, summary
from probekit.report.figures import Drawing
from probekit.report.kinds import Kind, by_kind
from probekit.report.layers import by_layer
from probekit.report.sources import Source, find, read
from probekit.report.svg import embed
from probekit.report.tables import LARGEST, Table, table
from probekit.report.text import markdown
from probekit.rows import card_path, make_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["build_report"]


def build_report(
    rows: Sequence[str | Path],
    out: str | Path,
    *,
    title: str | None = None,
    figures: Sequence[str | Path] = (),
    texts: Sequence[str | Path] = (),
) -> Path:
    """Write one HTML page that holds all there is to say of rows, and asks nothing of any other place.

        build_report(["cola.parquet", "sst2.parquet"], "report.html")

    rows : files of rows (.parquet, .csv), each with its evidence card beside, or folders of studies or training runs
    out : a file .html; it appears whole: written beside, then renamed
    title : of the page; the tasks' names without it
    figures : further SVG files, each at will with a caption beside (the same name with .md, or .json with "title",
        "caption", "alt" and the fields of an evidence card); texts : Markdown files, shown before all else
    The same files give the same bytes. Returns ``out``.
    Raises UsageError for another suffix, nothing given or a folder without rows; DataError naming a file that holds no
    rows, no SVG or no text.
    """
    out = Path(out)
    if out.suffix != ".html":
        raise UsageError(f"a report is written as .html, not {out.name!r}.")
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file, such as {out / 'report.html'}.")
    paths, own_figures, own_texts = find([Path(path) for path in rows])
    drawings = list(_given([*own_figures, *map(Path, figures)]))
    written = [(path.name, markdown(_text(path))) for path in [*own_texts, *map(Path, texts)]]
    sources = [read(path) for path in paths]
    asked = ["--title", title] if title else []
    asked += [word for path in figures for word in ("--figure", str(path))]
    asked += [word for path in texts for word in ("--text", str(path))]
    command = shlex.join(["probekit", "report", *map(str, rows), *asked, "-o", out.name])
    html = _page(sources, drawings, written, title, command)
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_text(html, encoding="utf-8", newline="\n")
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
    return out


def _page(
    sources: Sequence[Source],
    drawings: Sequence[Drawing],
    texts: Sequence[tuple[str, Markup]],
    title: str | None,
    command: str,
) -> str:
    from jinja2 import Environment, StrictUndefined

    rows = _together(sources)
    kinds = by_kind(rows)
    layered = (Kind.PROBES, Kind.INFORMATION, Kind.CODES)
    layers = {kind: by_layer(part) for kind, part in kinds.items() if kind in layered}
    found = [*cautions.of_sources(sources), *cautions.of_rows(kinds, layers)]
    here = files("probekit.report")
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((here / "page.html").read_text(encoding="utf-8")).render(
        title=title or _title(rows),
        lede=_lede(rows, sources),
        summaries=list(summary.summaries(kinds, layers)),
        cautions=found,
        texts=texts,
        drawings=drawings,
        sections=[_section(kind, part, layers.get(kind), rows) for kind, part in kinds.items()],
        cards=[_card(source) for source in sources],
        command=command,
        largest=LARGEST,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _together(sources: Sequence[Source]) -> pd.DataFrame:
    import pandas as pd

    held = [source.rows.assign(file=str(source.path)) for source in sources if len(source.rows)]
    return make_rows(pd.concat(held, ignore_index=True) if held else [])


def _title(rows: pd.DataFrame) -> str:
    tasks = [name.removeprefix("grammar:") for name in dict.fromkeys(rows["task"]) if name not in ("", "domains")]
    more = [f"{len(tasks) - 3:,} more tasks"] if len(tasks) > 4 else tasks[3:]
    *first, last = [*tasks[:3], *more] or [""]
    return f"Results on {', '.join(first)}{' and ' * bool(first)}{last}" if tasks else "Results"


def _lede(rows: pd.DataFrame, sources: Sequence[Source]) -> list[str]:
    """How much was measured of what, when, and with what."""
    counts = [f"{len(rows):,} rows from {len(sources):,} file{'s' * (len(sources) != 1)}"]
    for column in ("task", "model"):
        names = [name for name in dict.fromkeys(rows[column]) if name not in ("", "domains")]
        if names:
            short = [name.removeprefix("grammar:") for name in names[:6]]
            counts.append(
                f"{len(names):,} {column}{'s' * (len(names) != 1)} ({', '.join(short)}{' …' * (len(names) > 6)})"
            )
    said = [", ".join(counts) + "."]
    days = sorted({str(s.card["created"])[:10] for s in sources if s.card.get("created")})
    versions: dict[str, dict[str, None]] = {}
    for source in sources:
        for package, version in _mapping(source.card.get("versions")).items():
            versions.setdefault(package, {})[version] = None
    if days:
        when = days[0] if len(days) == 1 else f"between {days[0]} and {days[-1]}"
        with_ = ", ".join(f"{package} {' and '.join(found)}" for package, found in versions.items())
        said.append(f"Made {when}{' with ' + with_ if with_ else ''}.")
    return said


def _section(kind: Kind, rows: pd.DataFrame, layers: pd.DataFrame | None, everything: pd.DataFrame) -> dict[str, Any]:
    """What the page says of one kind of rows; everything : rows of all kinds"""
    import pandas as pd

    where = list(dict.fromkeys(rows["file"]))
    alone = everything["file"].isin(where).sum() == len(rows)  # else a command would draw what else there is
    tables: list[Table] = []
    if layers is not None and len(layers):
        shown = layers.drop(columns=["random", "noise_mean", "penalty_at_edge"], errors="ignore")
        tables.append(table(shown, "The main metric by layer, with its interval, beside what shuffled labels give."))
    if kind is Kind.TRAINING:
        tables.append(table(summary.trained(rows), "The weights that were kept, by task, metric and regime."))
    if kind is Kind.DOMAINS and len(found := summary.pairs(rows)):
        tables.append(table(found, "Each two domains, the nearest first."))
    plain = rows.drop(columns=["layer", *(["file"] if len(where) == 1 else [])])
    plain = plain.rename(columns={"layer_name": "layer"})
    whole = table(plain, "All rows, as they are in the files.")
    drawn = list(figures.of_kind(kind, rows, pd.DataFrame() if layers is None else layers, files_known=bool(alone)))
    return {"id": kind.name.lower(), "name": kind.value, "figures": drawn, "tables": tables, "all": whole,
            "files": where}  # fmt: skip


def _card(source: Source) -> dict[str, Any]:
    """A card as the page shows it: whatever stands in the file, as text."""
    card = source.card
    caches = card.get("caches") if isinstance(card.get("caches"), list) else []
    return {
        "file": str(source.path),
        "count": len(source.rows),
        "doubt": source.doubt,
        "command": str(card.get("command") or ""),
        "facts": [
            (name, ", ".join(f"{k} {v}" for k, v in _mapping(card.get(key)).items()) or str(card.get(key) or ""))
            for name, key in (
                ("made", "created"), ("git revision", "git"), ("versions", "versions"), ("seeds", "seeds"),
                ("seconds", "durations"),
            )
            if card.get(key)
        ],
        "caches": [(c.get("spec_id", ""), c.get("path", "")) for c in caches if isinstance(c, Mapping)],  # type: ignore[union-attr]
        "arguments": json.dumps(card["arguments"], indent=2, ensure_ascii=False) if card.get("arguments") else "",
    }  # fmt: skip


def _given(paths: Sequence[Path]) -> Iterator[Drawing]:
    """Figures made elsewhere, with the captions beside them."""
    for i, path in enumerate(paths):
        if not path.is_file():
            raise DataError("there is no such figure.", file=path)
        card: Mapping[str, Any] = {}
        if (beside := card_path(path)).is_file():
            try:
                loaded = json.loads(_text(beside))
            except ValueError as error:
                raise DataError(f"the caption is no JSON ({error}).", file=beside) from None
            card = loaded if isinstance(loaded, dict) else {}
        caption = str(card.get("caption") or card.get("title") or path.stem.replace("-", " ").replace("_", " "))
        if (written := path.with_suffix(".md")).is_file():
            caption = " ".join(_text(written).split())
        alt = str(card.get("title") or caption)
        facts = tuple((key, str(card[key])) for key in ("created", "git") if card.get(key))
        try:
            html = embed(path.read_bytes(), f"given-{i + 1}", alt, str(card.get("alt") or ""))
        except DataError as error:
            raise DataError(str(error), file=path) from None
        yield Drawing(caption, html, command=str(card.get("command") or ""), card=facts)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError("there is no such text.", file=path) from None
    except UnicodeDecodeError as error:
        raise DataError(f"wanted is UTF-8 text ({error}).", file=path) from None


def _mapping(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, Mapping) else {}


def _hash(text: str) -> str:
    """As a Content-Security-Policy names what may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
