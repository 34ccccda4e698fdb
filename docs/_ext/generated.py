"""Pages generated from the code at each build: one for each command, one for each public name, the notebooks.

The files are in ``commands/``, ``api/`` and ``gallery/``, which git ignores. Pages link to ``commands.md#COMMAND``,
``../notebooks/`` and ``../probekit/__init__.pyi`` (the list of public names), so that they can also be read where
nothing is built; on the site these links lead to the files.
A line that is a link to ``tables/NAME.csv`` and nothing else shows the table, which the reader can search and download.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
import shutil
import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cyclopts.docs.markdown import generate_markdown_docs
from sphinx.application import Sphinx
from sphinx.config import Config

import probekit
from probekit.cli.commands import COMMANDS, make_app
from probekit.functions import FUNCTIONS, find
from probekit.plugins import groups, listed

API = """# Python

A function has the options of the command of the same name: `probekit.probe(…, controls=3)` is
`probekit probe … --controls 3`.

Completion (`probekit.<TAB>`) shows the names of the first hour, and groups; `probekit.analyses.<TAB>` the analyses.
All functions that are commands can also be called without their group: `probekit.movement` is
`probekit.analyses.movement`. Other names have their group before them, such as `probekit.plots.layer_curve`.
"""
ORDER = ("tasks", "models", "activations", "analyses", "plots", "report", "tables", "explore", "adaptation", "studies")
"""Groups in the order of work; others follow."""
CALLED = {name: ".".join(FUNCTIONS[name].split(".")[:2]) for name in groups() if name in FUNCTIONS}
"""Groups that can be called as a function, and the group of the function."""


TABLE = re.compile(r"^\[[^\]\n]+\]\(((?:\.\./)*tables/[\w-]+\.csv)\)$", re.M)
"""A line of a page that is a link to a table and nothing else."""


def write_pages(app: Sphinx, _: Config) -> None:
    """Write all generated pages below the source folder."""
    docs = Path(app.srcdir)
    for folder in ("api", "commands", "gallery"):
        shutil.rmtree(docs / folder, ignore_errors=True)
        (docs / folder).mkdir()
    (docs / "commands.md").write_text("\n".join(commands_list()), encoding="utf-8")
    for name in COMMANDS:
        (docs / "commands" / f"{name}.md").write_text(command_page(name), encoding="utf-8")
    for notebook in sorted((docs.parent / "notebooks").glob("*.ipynb")):
        text = notebook.read_text(encoding="utf-8")
        (docs / "gallery" / notebook.name).write_text(text.replace("](../docs/", "](../"), encoding="utf-8")
        for tag, png in tagged_figures(json.loads(text)):
            (docs / "gallery" / f"{notebook.stem}-{tag}.png").write_bytes(png)
    (docs / "api.md").write_text("\n".join(api_page()), encoding="utf-8")
    vars(probekit).update({name: find(name) for name in CALLED})  # Sphinx would describe the package, not the function


def tagged_figures(notebook: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The figures of cells that have a tag, for the cards of ``gallery.md``."""
    for cell in notebook["cells"]:
        for tag in cell["metadata"].get("tags", ()):
            [png] = [o["data"]["image/png"] for o in cell["outputs"] if "image/png" in o.get("data", ())]
            yield tag, b64decode(png)


def lead_to_generated(_: Sphinx, page: str, source: list[str]) -> None:
    """Turn links to a command in ``commands.md``, a notebook and the list of names into links to their pages."""
    text = "\n".join(commands_page()) if page == "commands" else source[0]
    text = re.sub(r"\]\(((?:\.\./)*)commands\.md#([\w-]+)\)", r"](\1commands/\2.md)", text)
    text = re.sub(r"\]\(\.\./((?:\.\./)*)notebooks/(\w+\.ipynb)\)", r"](\1gallery/\2)", text)
    source[0] = re.sub(r"\]\(\.\./((?:\.\./)*)probekit/__init__\.pyi\)", r"](\1api.md)", text)


def show_tables(app: Sphinx, page: str, source: list[str]) -> None:
    """Show each table below the link to its file."""
    folder = (Path(app.srcdir) / page).parent
    for name in re.findall(TABLE, source[0]):
        app.env.note_dependency(str(folder / name))
    show = ":::{{container}} lines\n{}\n\n{}\n:::".format
    source[0] = re.sub(TABLE, lambda link: show(link[0], table(folder / link[1])), source[0])


def table(path: Path) -> str:
    """A CSV file as Markdown; its first line has the titles."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = (
            [cell.replace("|", r"\|").replace(" ± ", "\u00a0±\u00a0") for cell in line] for line in csv.reader(file)
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def commands_list() -> Iterator[str]:
    """The commands by group, for readers without the site: it is in git, and written anew at each build."""
    yield "# Commands\n\n`probekit COMMAND --help` prints the options of a command; on the site each has a page.\n"
    for group in sorted({command.group for command in COMMANDS.values()}, key=lambda group: group.sort_key):
        yield f"## {group.name}\n"
        own = ((name, command.help) for name, command in COMMANDS.items() if command.group is group)
        yield from (f"### {name}\n\n{line}\n" for name, line in own)


def commands_page() -> Iterator[str]:
    """The commands by group, as ``probekit --help`` lists them."""
    yield "# Commands\n\nEach command has a page here; `probekit COMMAND --help` prints the same text."
    for group in sorted({command.group for command in COMMANDS.values()}, key=lambda group: group.sort_key):
        yield f"\n## {group.name}\n\n| Command | What it does |\n|---|---|"
        own = ((name, command.help) for name, command in COMMANDS.items() if command.group is group)
        yield from (f"| [`probekit {name}`](commands/{name}.md) | {line} |" for name, line in own)
    yield "\n```{toctree}\n:hidden:\n"
    yield from (f"commands/{name}" for name in sorted(COMMANDS))
    yield "```\n"


def command_page(name: str) -> str:
    """The help text of ``probekit NAME --help``, as Markdown."""
    with patch.object(sys, "argv", ["probekit"]):  # the usage line names the running program
        text = generate_markdown_docs(make_app([name])[name], command_chain=["probekit", name], generate_toc=False)
    text = re.sub(r", --empty-[\w-]+", "", text)  # the command line does not take them
    return text.replace("```console", "```text").replace("&nbsp;", " ")


def api_page() -> Iterator[str]:
    """The public names by group, as ``probekit/__init__.pyi`` and those of the groups list them; each has a page."""
    yield API
    yield from _section("The first hour", "", "probekit", probekit.FIRST, pages=False)
    flat = listed("probekit")
    for group in sorted(groups(), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        module = getattr(probekit, group)
        about = re.sub(r":\w+:`([^`]+)`", r"`\1`", (module.__doc__ or "").partition("\n")[0])
        home = module.__name__
        own = [name for name, place in flat.items() if place == home or CALLED.get(name) == home]
        names = [name for name in module.__all__ if name not in {*own, *CALLED} and has_page(getattr(module, name))]
        yield from _section(home, about, "probekit", own)
        yield from _section("", "", home, names)
    alone = [name for name, place in flat.items() if place and place.removeprefix("probekit.") not in groups()]
    yield from _section("Results, and others", "", "probekit", alone)


def has_page(value: object) -> bool:
    """Whether a public name has a page: functions and classes have one."""
    return inspect.isroutine(value) or inspect.isclass(value)


def _section(title: str, about: str, module: str, names: Sequence[str], *, pages: bool = True) -> Iterator[str]:
    """A heading, unless it is empty, and a table of names."""
    if title:
        yield f"## {title}\n\n{about}\n"
    if names:
        toctree = "   :toctree: api\n" * pages
        yield f"```{{eval-rst}}\n.. currentmodule:: {module}\n\n.. autosummary::\n{toctree}   :nosignatures:\n"
        yield from (f"   {name}" for name in sorted(names, key=str.lower))
        yield "```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", write_pages)  # before Sphinx looks for pages
    app.connect("source-read", lead_to_generated)
    app.connect("source-read", show_tables)
    app.add_js_file("tables.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
