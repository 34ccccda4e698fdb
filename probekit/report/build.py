"""The page: rows, cards, figures and texts in one HTML file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from probekit.constraint import Out
from probekit.display import shown_model
from probekit.errors import ProbekitError, UsageError
from probekit.files import MARK, FileKind, is_sealed, write
from probekit.former import in_new_words
from probekit.plots.curves import RANDOM, plot_rows
from probekit.public import public
from probekit.recipe import Recipe
from probekit.report import caveats, figures, summary
from probekit.report.curves import JOINT, by_layer, model_once
from probekit.report.markdown import markdown, text
from probekit.report.options import ReportOptions
from probekit.report.responses import responses
from probekit.report.sections import TITLES, TRAINING, by_section, is_by_layer
from probekit.report.studies import Made, Part, Source, find, read
from probekit.report.tables import LARGEST, Table, table, views
from probekit.rows import Result, joined, make_rows
from probekit.rows import read as read_result
from probekit.rows.card import reads_of
from probekit.rows.families import ALPHA, corrected_for, families
from probekit.rows.model_names import rows_apart
from probekit.rows.schema import KEYS
from probekit.rows.selection import together
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Template

REPORT_FILE = FileKind("a report as probekit wrote it", is_sealed)


@public(options=ReportOptions)
def report(*sources: str | Path | Result, out: Out = "report.html", options: ReportOptions) -> Path:
    """Collect results in one HTML page: figures, tables, controls, warnings, and the commands that made them.

    The page opens in any browser, offline. It contains a summary (best layers, peak of the information, training by
    regime, near and far domains), warnings, a section for each kind of result, and the evidence card of each file.
    Click a heading to sort a table. The page can be printed, and reads well on a phone. The same files give the same
    bytes.

    For a study's folder, the study's own tables and figures come first, followed by its failed steps; what these
    figures show is not drawn again, and files that earlier versions of the study left are not shown. Each study or
    folder of rows gets its own part of the page. A folder of folders stands for all of them.

    Parameters
    ----------
    *sources : path or Result
        Rows of any command (.parquet, .csv) with their evidence cards, or folders: a study, a run, or rows. In Python
        also saved results.
    out : path
        The page to write, .html.
    options : ReportOptions
        ``title``, ``figure`` (SVG files, each optionally with a caption in a file of the same name: .md, or .json with
        "title", "caption", "alt", "created" and "git"), ``text`` (Markdown files, shown first), ``explore`` (pages
        of ``probekit explore``, linked), and ``responses`` and ``seed`` (how many responses are shown, and which); they
        may be given one by one.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    UsageError
        For another suffix, without sources, for a result that is not saved, and for a folder without rows.
    DataError
        For a file that contains no rows, no SVG or no text.

    Examples
    --------
    >>> probekit.report("cola.parquet", "sst2.parquet", out="report.html")  # doctest: +SKIP

    On the command line::

        probekit report cola.parquet sst2.parquet -o report.html
        probekit report probes.parquet mi.parquet runs/*/rows.parquet -o results.html --title "MiniLM, first results"
        probekit report studies/figure1-small -o figure1.html
        probekit report studies -o all.html --title "MiniLM and the paper"
        probekit report domains.parquet --figure map.svg --text findings.md -o domains.html
    """
    out = Path(out)
    if out.is_dir():
        raise UsageError(f"{out} is a folder; give a file name, such as {out / 'report.html'}.")
    if out.suffix != ".html":
        form = out.suffix or "a file without a suffix"
        raise UsageError(f"a report is one HTML page, not {form}; name it {out.with_suffix('.html')}.")
    REPORT_FILE.check(out)
    paths = [_path(source) for source in sources]
    parts = find(paths)
    if (options.figure or options.text) and len(parts) > 1:
        parts.insert(0, Part("Overview"))
    parts[0].figures += [Made(Path(path)) for path in options.figure]
    parts[0].texts += [Made(Path(path)) for path in options.text]
    arguments = {"sources": paths, "out": out.name} | {f.name: getattr(options, f.name) for f in fields(options)}
    html = _page(parts, options, _explorers(options.explore, out), str(Recipe.of("report", arguments)))
    return write(out, html, REPORT_FILE)


def _path(source: str | Path | Result) -> Path:
    if isinstance(source, Result):
        if source.path is None:
            raise UsageError("a report reads files; save the result first, with result.save('rows.parquet').")
        return source.path
    return Path(source)


def _explorers(pages: Sequence[str], out: Path) -> list[tuple[str, str]]:
    """Links to pages of ``probekit explore``, relative to the report, with their names."""
    for page in pages:
        if not Path(page).is_file() or not is_sealed(Path(page)):
            raise UsageError(f"{page} is not a page as probekit explore wrote it.")
    return [(quote(os.path.relpath(page, out.parent)), Path(page).name) for page in pages]


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((files("probekit.report") / "page.html").read_text(encoding="utf-8"))


def _page(parts: Sequence[Part], options: ReportOptions, explorers: Sequence[tuple[str, str]], command: str) -> str:
    shown = [_part(part, options, f"s{i}-" * (len(parts) > 1)) for i, part in enumerate(parts, 1)]
    here = files("probekit.report")
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return _template().render(
        title=options.title or (shown[0]["title"] if len(shown) == 1 else "Results of several studies"),
        parts=shown,
        explorers=explorers,
        command=command,
        mark=MARK,
        largest=LARGEST,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _part(part: Part, options: ReportOptions, prefix: str) -> dict[str, Any]:
    """The contents of the page for one study, or for files without a study; prefix : of ids"""
    sources = _apart([read(path) for path in part.rows])
    rows = _together(sources)
    count = families(rows) if len(rows) else 0
    with corrected_for(max(1, count) if options.family == "report" else 1):
        said = list(dict.fromkeys(_verdicts(sources, again=options.family == "report")))
    sections = by_section(rows)
    layers = {section: by_layer(found) for section, found in sections.items() if is_by_layer(section)}
    cards = {str(source.path): source.card for source in sources}
    many = f"{part.outdated:,} file{'s' * (part.outdated != 1)}"
    old = f"{many} of rows, figures or tables in the study's folder are not shown: no current step of the study wrote "
    outdated = [caveats.Caveat(f"{old}them.", [])] if part.outdated else []
    undone = [caveats.Caveat("This study is incomplete; the page shows only the finished steps.", part.undone)]
    return {
        "id": prefix,
        "title": part.title or _title(rows),
        "about": part.about,
        "lede": _lede(rows, sources) if sources else [],
        "undone": undone if part.undone else [],
        "verdicts": said,
        "families": _families(count, options.family) if said and count else "",
        "texts": [(made.path.name, markdown(text(made.path)), shlex.join(made.words)) for made in part.texts],
        "drawings": list(figures.given(sections, part.figures, prefix)),
        "summaries": list(summary.summaries(sections, layers)),
        "cautions": [*outdated, *caveats.of_sources(sources), *caveats.of_rows(sections, layers)],
        "sections": [
            _section(name, sections, layers.get(name), part.figures, prefix, options, cards) for name in sections
        ],
        "cards": [_card(source) for source in sources],
    }


def _verdicts(sources: Sequence[Source], *, again: bool) -> Iterator[str]:
    """The findings: comparisons first, then layer curves, then others; a summary only repeats the probes of its tasks.

    They are those of the cards, but layer curves of several files are judged together, because p is corrected for all.
    ``again``: all are made from the rows.
    """
    analyses = {source.path: set(source.rows["analysis"]) for source in sources}
    probed = {task for source in sources for task in source.rows.loc[source.rows["analysis"] == "probe", "task"]}
    layered = [source for source in sources if analyses[source.path] and analyses[source.path] <= set(together())]
    layered.sort(key=lambda source: min(map(together().index, analyses[source.path])))
    for source in sources:
        if analyses[source.path] == {"compare"}:
            yield from _sentences(source, again=again)
    yield from _judged(layered, again=again)
    for source in sources:
        repeated = analyses[source.path] == {"summary"} and set(source.rows["task"]) <= probed
        if source not in layered and analyses[source.path] != {"compare"} and not repeated:
            yield from _sentences(source, again=again)


def _families(count: int, family: str) -> str:
    """How far the p-values of the sentences of a page are corrected, and what this leaves to chance."""
    many = f"{count:,} families of questions" if count > 1 else "one family of questions"
    if family == "report" or count == 1:
        over = f" over all {many}, besides" if count > 1 else ", over"
        return (
            f"The p-values of these sentences are corrected{over} the layers and curves of each: where nothing is to "
            "be found, some sentence claims something on at most 5 % of such pages."
        )
    return (
        f"These sentences answer {many}, each corrected for itself at 5 %: where nothing is to be found, some "
        f"sentence claims something on about {100 * (1 - (1 - ALPHA) ** count):.0f} % of such pages. "
        "probekit report --family report corrects them together."
    )


def _sentences(source: Source, *, again: bool = False) -> Iterator[str]:
    if again:
        try:
            yield from read_result(source.path).verdict
        except ProbekitError as error:
            yield f"{source.path.name} has no corrected sentences: {error}"
        return
    verdict = source.card.get("verdict")
    yield from (str(sentence) for sentence in (verdict if isinstance(verdict, list) else []))


def _judged(sources: Sequence[Source], *, again: bool = False) -> Sequence[str]:
    """The findings from the layer curves of all files, as ``probekit run`` prints them.

    Those of the cards if a curve is in several files, or if predictions are damaged or for different examples.
    """
    of_cards = [sentence for source in sources for sentence in _sentences(source, again=again)]
    if not of_cards or len(sources) < 2:
        return of_cards
    rows = _together(sources)
    single = rows[(rows["target"] == "gold") & rows["draw"].isna() & (rows["site"] != "")]
    if single.duplicated([c for c in (*KEYS, "random_weights") if c in single]).any():
        return of_cards
    try:
        results = [read_result(source.path) for source in sources]
        verdict = joined(results).verdict
    except ProbekitError:
        return of_cards
    notes = [note for one in results for note in replace(one, rows=one.rows[:0], predictions=()).verdict]
    return [*verdict, *notes]


def _apart(sources: Sequence[Source]) -> list[Source]:
    """The sources, in whose rows models of one name are told apart."""
    reads = []
    for source in sources:
        try:
            reads.append(reads_of(source.card))
        except (KeyError, TypeError, AttributeError):  # a stranger's card
            reads.append(())
    tables = rows_apart([(source.rows, of) for source, of in zip(sources, reads, strict=True)])
    return [replace(source, rows=rows) for source, rows in zip(sources, tables, strict=True)]


def _together(sources: Sequence[Source]) -> pd.DataFrame:
    import pandas as pd

    held = [source.rows.assign(file=str(source.path)) for source in sources if len(source.rows)]
    return make_rows(pd.concat(held, ignore_index=True) if held else [])


def _title(rows: pd.DataFrame) -> str:
    tasks = [shown_task(name) for name in dict.fromkeys(rows["task"]) if name not in ("", "domains")]
    more = [f"{len(tasks) - 3:,} more tasks"] if len(tasks) > 4 else tasks[3:]
    *first, last = [*tasks[:3], *more] or [""]
    return f"Results on {', '.join(first)}{' and ' * bool(first)}{last}" if tasks else "Results"


def _lede(rows: pd.DataFrame, sources: Sequence[Source]) -> list[str]:
    """The number of rows, tasks and models, the dates and the versions."""
    counts = [f"{len(rows):,} rows from {len(sources):,} file{'s' * (len(sources) != 1)}"]
    for column in ("task", "model"):
        names = [name for name in dict.fromkeys(rows[column]) if name not in ("", "domains")]
        if names:
            short = [shown_task(name) if column == "task" else _model(rows, name) for name in names[:6]]
            counts.append(
                f"{len(names):,} {column}{'s' * (len(names) != 1)} ({', '.join(short)}{' …' * (len(names) > 6)})"
            )
    sentences = [", ".join(counts) + "."]
    days = sorted({str(s.card["created"])[:10] for s in sources if s.card.get("created")})
    versions: dict[str, dict[str, None]] = {}
    for source in sources:
        for package, version in _mapping(source.card.get("versions")).items():
            versions.setdefault(package, {})[version] = None
    if days:
        when = days[0] if len(days) == 1 else f"between {days[0]} and {days[-1]}"
        with_ = ", ".join(f"{package} {' and '.join(found)}" for package, found in versions.items())
        sentences.append(f"Computed {when}{' with ' + with_ if with_ else ''}.")
    return sentences


def _model(rows: pd.DataFrame, name: str) -> str:
    """The name of a model; if all its rows have random weights, they are part of it."""
    return shown_model(name) + f", {RANDOM}" * bool(plot_rows(rows[rows["model"] == name])["random"].all())


def _section(
    section: str,
    sections: Mapping[str, pd.DataFrame],
    layers: pd.DataFrame | None,
    shown: Sequence[Made],
    prefix: str,
    options: ReportOptions,
    cards: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The contents of one section; shown : figures that are on the page already"""
    rows = sections[section]
    where = list(dict.fromkeys(rows["file"]))
    tables: list[Table] = []
    if layers is not None and len(layers):
        by_layer_ = layers.drop(columns=["random", "noise_mean", "penalty_at_edge", *JOINT], errors="ignore")
        caption = "The main metric by layer, with its interval, and its noise: permuted labels, or shuffled ones."
        tables.append(table(model_once(by_layer_), caption))
    if section == TRAINING:
        tables.append(table(summary.trained_rows(rows), "Results of the kept weights, by task, metric and regime."))
        spoken = rows.loc[rows["metric"] == "chrf", "file"]
        tables += responses(dict.fromkeys(spoken), options.responses, options.seed)
    tables += [] if layers is not None else views(section, rows, cards)
    plain = rows.drop(columns=["layer", "run", "run_kind", "method", "random", *["file"] * (len(where) == 1)])
    whole = table(plain.rename(columns={"layer_name": "layer"}), "All rows, unchanged.")
    drawn = list(figures.of_section(section, sections, shown, prefix))
    name = {"id": f"{prefix}{section}", "name": TITLES[section]}
    return {**name, "figures": drawn, "tables": tables, "all": whole, "files": where}


def _card(source: Source) -> dict[str, Any]:
    """A card as the page shows it: the contents of the file, as text."""
    card = source.card
    reads = card.get("reads") or card.get("caches")  # the key in version 0.1
    recipe = card.get("recipe")
    arguments = recipe.get("arguments") if isinstance(recipe, Mapping) else card.get("arguments")
    return {
        "file": str(source.path),
        "count": len(source.rows),
        "doubt": source.doubt,
        "command": in_new_words(str(card.get("words") or card.get("command") or "")),
        "facts": [
            (name, ", ".join(f"{k} {v}" for k, v in _mapping(card.get(key)).items()) or str(card.get(key) or ""))
            for name, key in (
                ("made", "created"), ("git revision", "git"), ("versions", "versions"), ("machine", "machine"),
                ("seeds", "seeds"), ("seconds", "seconds"), ("seconds", "durations"),
            )
            if card.get(key)
        ],
        "reads": [
            (read.get("digest") or read.get("spec_id", ""), read.get("path", ""))
            for read in (reads if isinstance(reads, list) else [])
            if isinstance(read, Mapping)
        ],
        "arguments": json.dumps(arguments, indent=2, ensure_ascii=False) if arguments else "",
    }  # fmt: skip


def _mapping(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, Mapping) else {}


def _hash(text: str) -> str:
    """The hash of a style or script, for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
