"""What pages say holds: their Python runs, their commands are valid, and mistakes give the message that is shown."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from cyclopts import App
from tiny import tiny_model

import probekit
from probekit.cli.commands import COMMANDS, make_app
from probekit.functions import FUNCTIONS, find

ROOT = Path(probekit.__file__).parent.parent
PAGES = sorted(
    page
    for pattern in ("README.md", "docs/*.md", "docs/analyses/*.md", "docs/papers/*.md")
    for page in ROOT.glob(pattern)
    if page.name not in ("api.md", "commands.md")
)
BLOCK = re.compile(r"(?P<skipped><!-- not run: [^>]+-->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
FILES = {
    "train.csv": "text,stars\ngood,1\nbad,0\n",
    "dev.csv": "text,stars\nfine,1\npoor,0\n",
    "mine.toml": 'text = "sentence"\nlabel = "stars"\n\n[splits]\ntrain = "train.csv"\ndev = "dev.csv"\n',
    "yes.csv": "text,label\ngood,pos\nbad,neg\nodd,Pos\n",
    "yes.toml": '[splits]\ntrain = "yes.csv"\n',
}


def blocks(page: Path, *languages: str) -> list[str]:
    """The code of a page in these languages, but what it says is not run."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [m["text"] for m in found if m["language"] in languages and not m["skipped"]]


def with_blocks(*languages: str, slow: Collection[str] = ()) -> pytest.MarkDecorator:
    pages = {page.relative_to(ROOT).as_posix(): page for page in PAGES if blocks(page, *languages)}
    marked = [pytest.param(page, id=n, marks=[pytest.mark.slow] if n in slow else []) for n, page in pages.items()]
    return pytest.mark.parametrize("page", marked)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The files that pages name: caches of a model as deep as MiniLM, and of random weights, and rows."""
    folder = tmp_path_factory.mktemp("pages")
    model = tiny_model("bert", tmp_path_factory.mktemp("models") / "MiniLM", num_hidden_layers=6)
    for seed, middle in ((None, ""), (0, ".random")):
        encoder = probekit.load_encoder(model, device="cpu", random_weights=seed)
        for split in ("train", "dev"):
            out = folder / f"{split}{middle}.h5"
            probekit.cache_activations(
                encoder, "grammar:sentiment", split, limit=80, model_name="MiniLM", out=out
            ).close()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    for task in ("cola", "sst2"):
        for split in ("train", "dev"):
            shutil.copy(folder / f"{split}.h5", folder / f"{task}.{split}.h5")
    for name, middle in (("pretrained", ""), ("tuned", ".random")):  # random weights in place of fine-tuned ones
        for split in ("train", "dev"):
            shutil.copy(folder / f"{split}{middle}.h5", folder / f"{name}.{split}.h5")
        caches = (folder / f"{name}.{split}.h5" for split in ("train", "dev"))
        probed = probekit.probe(*caches, controls=1, resamples=200, out=folder / f"{name}.parquet")
        if name == "pretrained":
            probed.save(folder / "sentiment.parquet")
            for name in ("sst2", "mine"):
                probed.probe(layer=4).save(folder / "kept" / name)
    return folder


@pytest.fixture
def workspace(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


LONG = [f"docs/{name}.md" for name in ("concepts", "reading-maps")]
LONG += [f"docs/analyses/{name}.md" for name in ("domains", "mdl", "similarity")]
"""Pages whose code runs for many seconds."""


@with_blocks("python", slow=LONG)
def test_python_runs(page, workspace):
    names = {"probekit": probekit}
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), names)


def commands(page: Path) -> Iterator[list[str]]:
    for text in blocks(page, "sh", "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("probekit "):
                yield shlex.split(line, comments=True)[1:]


@cache
def app_of(command: str) -> App:
    return make_app([command])


@with_blocks("sh", "bash")
def test_commands_are_valid(page):
    for words in commands(page):
        if words[0].startswith("-"):
            continue
        app_of(words[0]).parse_args(words, exit_on_error=False, print_error=False)


@with_blocks("console")
def test_mistakes_give_the_message_that_is_shown(page, workspace, call, minilm):
    for text in blocks(page, "console"):
        command, message = text.removeprefix("$ ").split("\n", 1)
        words = [str(minilm) if word == "MODEL" else word for word in shlex.split(command)]
        said = call(*words[1:])
        assert said.status == 2, command
        likeness = SequenceMatcher(None, said.err.split("probekit: ")[-1].split(), message.split()[1:]).ratio()
        assert likeness > 0.6, f"{command}\nsays {said.err}\n{page.name} shows {message}"


def test_links_lead_somewhere_also_where_no_site_is_built():
    """To files in git; Sphinx checks links within pages."""
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)[)#]", page.read_text("utf-8"))]
    assert len(links) > 100
    built = re.compile(r"docs/((api|commands|gallery)/|api\.md$)")
    there = {(page, link): (page.parent / link).resolve() for page, link in links}
    dead = [key for key, path in there.items() if not path.exists() or built.match(str(path.relative_to(ROOT)))]
    assert dead == []


def test_pages_of_the_guide_are_short_and_every_table_is_shown():
    """1,200 words, pages of analyses too. Measurements are tables of equal lines."""
    words = {}
    for index in (ROOT / "docs/guide.md", ROOT / "docs/analyses/index.md"):
        listed = "".join(re.findall(r":hidden:\n(.*?)```", index.read_text(encoding="utf-8"), re.S))
        pages = {index.parent / f"{name}.md" for name in re.findall(r"^[\w-]+$", listed, re.M)}
        assert len(pages) > 14
        words |= {page.stem: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert {name: number for name, number in words.items() if number > 1200} == {}
    shown = {
        name
        for page in PAGES
        for name in re.findall(r"^\[[^]]+\]\(\S*(tables/\S+\.csv)\)$", page.read_text("utf-8"), re.M)
    }
    files = list(ROOT.glob("docs/tables/*"))
    assert shown == {f"tables/{path.name}" for path in files}
    for path in files:
        assert len({len(line) for line in csv.reader(path.read_text(encoding="utf-8").splitlines())}) == 1, path


def test_the_list_of_commands_is_that_of_this_version():
    """make docs writes it."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    sections = re.findall(r"### (\S+)\n\n(.+)\n", text)
    assert sorted(sections) == sorted((name, command.help) for name, command in COMMANDS.items())
    wanted = {link for page in PAGES for link in re.findall(r"commands\.md#([\w-]+)", page.read_text("utf-8"))}
    assert wanted <= dict(sections).keys()


def test_docstrings_speak_python():
    """Options are named as arguments; command lines have a section of their own, and help says them as typed."""
    docs = {name: (find(name).__doc__ or "").partition("On the command line::")[0] for name in FUNCTIONS}
    typed = {
        name: re.findall(r"(?<![\w`-])--[a-z][\w-]*", re.sub(r"probekit [a-z-]+ --\S+", "", docs[name]))
        for name in docs
    }
    assert {name: options for name, options in typed.items() if options} == {}
    assert '``tails="better"``' in docs["compare"]
    help_ = " ".join((make_app(["compare"])["compare"].help or "").split())
    assert "--tails better" in help_


def test_every_public_function_and_class_has_a_page():
    pytest.importorskip("sphinx")
    spec = spec_from_file_location("generated", ROOT / "docs/_ext/generated.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "\n".join(module.api_page())
    parts = re.findall(
        r"currentmodule:: (\S+)\n\n.. autosummary::\n   :toctree: api\n   :nosignatures:\n\n(.*?)```", text, re.S
    )
    pages = [f"{place}.{name}" for place, names in parts for name in names.split()]
    assert len(pages) == len(set(pages))
    flat = {f"probekit.{name}" for name in probekit.__all__ if callable(getattr(probekit, name))}
    assert flat | {"probekit.explore.View", "probekit.explore.Selection", "probekit.analyses.Scene"} <= set(pages)
