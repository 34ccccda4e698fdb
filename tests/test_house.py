"""The plan of the house, held: which room may import which, what is public, and what an import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import probekit
from probekit.analysis import modules
from probekit.plugins import groups

ROOT = Path(probekit.__file__).parent
RANK = {
    **dict.fromkeys(
        (
            "addresses",
            "analysis",
            "calls",
            "constraint",
            "display",
            "errors",
            "files",
            "former",
            "functions",
            "grid",
            "heads",
            "hdf5",
            "metrics",
            "parquet",
            "notes",
            "plugins",
            "progress",
            "public",
            "recipe",
            "rows",
            "runtime",
            "sites",
            "threads",
            "toml",
            "version",
            "view",
        ),
        0,
    ),
    **dict.fromkeys(("tasks", "models", "statistics"), 1),
    "activations": 2,
    "probes": 3,
    "dictionaries": 3,
    "projection": 3,
    "domains": 3,
    "similarity": 3,
    "erasure": 3,
    "information": 3.5,
    "adaptation": 4,
    "monitors": 4,
    "analyses": 5,
    **dict.fromkeys(("plots", "tables"), 6),
    **dict.fromkeys(("report", "explore"), 6.5),
    **dict.fromkeys(("studies", "provenance"), 7),
    "demo": 8,
    "cli": 9,
}
"""Imports point from a higher rank to a lower one."""
ONLY = {
    "probes": {"statistics"},
    "dictionaries": set(),
    "domains": {"statistics"},
    "projection": {"statistics"},
    "similarity": {"statistics"},
    "erasure": {"statistics"},
    "information": {"statistics", "probes"},
    "plots": {"statistics", "tasks"},
    "tables": {"statistics"},
    "report": {"statistics", "plots", "tasks"},
}
"""What these rooms may import beside rank 0: they take arrays and rows."""


@cache
def parsed(path: Path) -> dict[type[ast.AST], list[ast.AST]]:
    """The nodes of a file that tests look at, by their type."""
    found: dict[type[ast.AST], list[ast.AST]] = {
        kind: [] for kind in (ast.Import, ast.ImportFrom, ast.If, ast.keyword, ast.Attribute, ast.Constant)
    }
    rest: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in rest:  # which grows; ast.walk takes twice as long
        if type(node) in found:
            found[type(node)].append(node)
        for value in node.__dict__.values():
            if isinstance(value, ast.AST):
                rest.append(value)
            elif isinstance(value, list):
                rest.extend(one for one in value if isinstance(one, ast.AST))
    return found


def nodes(path: Path, *kinds: type[ast.AST]) -> list[Any]:
    """The nodes of a file that are of these kinds."""
    return [node for kind in kinds for node in parsed(path)[kind]]


def imports(path: Path) -> set[str]:
    """Modules of probekit that a file names, those inside functions too."""
    found = set()
    for node in nodes(path, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {
                f"{node.module}.{alias.name}" if node.module == "probekit" else node.module for alias in node.names
            }
    return {name for name in found if name.startswith("probekit.")}


def strings(path: Path) -> set[str]:
    """The modules and functions that a file names in strings, "probekit.x:y", to import them late."""
    texts = {node.value for node in nodes(path, ast.Constant) if isinstance(node.value, str)}
    return {text for text in texts if re.fullmatch(r"probekit(\.\w+)+:\w+", text)}


def room(name: str) -> str:
    return name.partition(":")[0].split(".")[1]


FILES = [p for p in sorted(ROOT.rglob("*.py")) if p.parent != ROOT or p.stem not in ("__init__", "__main__")]


def test_imports_point_down():
    for path in FILES:
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for name in imports(path):
            there = room(name)
            if there == here:
                continue
            assert there in RANK, f"{path} imports {name}, a room without a rank"
            assert RANK[there] < RANK[here] or RANK[here] == 0 == RANK[there], (
                f"{path} imports {name}: rank {RANK[here]} imports rank {RANK[there]}"
            )
            if here in ONLY:
                assert RANK[there] == 0 or there in ONLY[here], f"{path} imports {name}, which {here} need not know"


def before(path: Path) -> set[str]:
    """The modules that a file imports when it runs, late ones too; not its package, which Python imports before it."""
    here = ".".join(("probekit", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    only_typed = [node for node in nodes(path, ast.If) if getattr(node.test, "id", "") == "TYPE_CHECKING"]
    typed = {n for node in only_typed for n in ast.walk(node)}
    found = set()
    for node in nodes(path, ast.ImportFrom):
        if node not in typed and (node.module or "").startswith("probekit."):
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES
            found |= inside or {node.module}
    return {name for name in found if name != here and not here.startswith(f"{name}.")}


MODULES = {".".join(("probekit", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__") for p in FILES}
CIRCLES = {"probekit.activations.view": "a cache is seen as the cache of a task by a class of its own kind"}
"""The modules that stand in a circle, and why."""


def test_no_circle_of_imports():
    names = {
        ".".join(("probekit", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): p for p in FILES
    }
    graph = {name: before(path) for name, path in names.items() if name not in CIRCLES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


UPWARD = {
    "functions.py": "the public functions by name",
    "rows/result.py": "the methods of a result",
    "analyses": "the figures of an analysis",
}
"""The only tables that name what stands above them, and what these are."""


def test_strings_point_down_too():
    for path in FILES:
        within = path.relative_to(ROOT)
        here = within.parts[0].removesuffix(".py")
        up = [name for name in strings(path) if room(name) != here and RANK[room(name)] > RANK[here]]
        if here == "analyses":
            up = [name for name in up if room(name) != "plots" or path.name != "__init__.py"]
        assert not up or str(within) in UPWARD, f"{path} names {up}"


def test_lists_of_public_names_import_from_their_own_room():
    for path in sorted(ROOT.rglob("*.pyi")):
        here = path.relative_to(ROOT).parts[0]
        assert here == "__init__.pyi" or {room(name) for name in imports(path)} <= {here}, path


def test_information_knows_solvers_alone_of_the_probes():
    for path in (ROOT / "information").rglob("*.py"):
        known = {name for name in imports(path) if room(name) == "probes"}
        assert all(name.startswith("probekit.probes.solvers") for name in known), path


def test_only_the_cache_room_knows_hdf5():
    """But for the published weights of ELMo, which are HDF5, and for what may be read of either."""
    for path in FILES:
        names = {node.module for node in nodes(path, ast.ImportFrom)}
        names |= {alias.name for node in nodes(path, ast.Import) for alias in node.names}
        room = path.relative_to(ROOT).parts[0]
        assert "h5py" not in names or room in ("activations", "hdf5.py") or path == ROOT / "models/elmo/files.py", path


def test_nothing_is_unpickled_or_run():
    for path in FILES:
        for node in nodes(path, ast.Import, ast.ImportFrom):
            names = [a.name for a in node.names] + [getattr(node, "module", "") or ""]
            assert not {"pickle", "dill", "joblib", "cloudpickle"} & set(names), path
        for node in nodes(path, ast.keyword):
            if node.arg in ("trust_remote_code", "allow_pickle"):
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path


HOMES = {
    "difflib": "errors.py", "fcntl": "files.py", "filelock": "files.py", "loky": "runtime.py", "tomllib": "toml.py",
    "sched_getaffinity": "runtime.py", "cpu_count": "runtime.py", "getppid": "runtime.py", "getpid": "files.py",
}  # fmt: skip
"""What one file alone imports or calls: others ask it."""
MOVING = {"studies", "cli/study.py"}
"""Where it stands a second time until its own rewriting has landed."""


def test_one_home_each():
    for path in FILES:
        here = str(path.relative_to(ROOT))
        for node in nodes(path, ast.Import, ast.ImportFrom, ast.Attribute):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.attr] if isinstance(node, ast.Attribute) else []
            for name in {name.split(".")[0] for name in names} & set(HOMES):
                assert here == HOMES[name] or here.startswith(tuple(MOVING)), f"{here} has {name} of {HOMES[name]}"


def test_public_names():
    """Flat names all work; what completion shows are groups, and the names of the first hour."""
    for name in probekit.__all__:
        assert getattr(probekit, name) is not None
    assert {*probekit.FIRST, *groups()} == {*dir(probekit)} < {*probekit.__all__}
    grouped = {name for group in groups() for name in (group, *dir(getattr(probekit, group)))}
    alone = {name for name in probekit.__all__ if name not in grouped}
    assert alone == {"new_task", "demo", "ProbekitError", "Recipe", "Result", "read", "read_rows", "write_rows"}
    with pytest.raises(AttributeError, match="nonsense"):
        _ = probekit.nonsense


LIGHT = (
    *("--help", "cache-activations --help", "mi --help", "train --help", "results --help", "clean --help"),
    *(f"{name} --help" for name in modules()),
    *("reproduce --help", "study --help", "study run --help", "study list", "study show sanity-small", "demo --help"),
)
HEAVY = "torch transformers datasets pandas sklearn scipy matplotlib h5py numba".split()
CHEAP = f"""
import sys
import probekit
from probekit.cli import main
main(["--help"])
found = {{"numpy": [name for name in ("numpy", "markdown_it") if name in sys.modules]}}
for words in {LIGHT}:
    main(words.split())
    found[words] = [name for name in {HEAVY} if name in sys.modules]
print("LOADED", found)
"""


def test_what_is_cheap_stays_cheap():
    """One after the other in one process: what the first of them loads, all after it have, too."""
    done = subprocess.run([sys.executable, "-c", CHEAP], capture_output=True, text=True, check=True)
    _, _, told = done.stdout.rpartition("LOADED ")
    assert ast.literal_eval(told.strip()) == {name: [] for name in ("numpy", *LIGHT)}


def test_a_caches_recipe_is_read_without_the_model():
    """Each analysis reads the recipes of its caches, for which the function that made them is imported."""
    code = "import sys, probekit.activations.writing.job; print({'torch', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_no_two_test_files_have_the_same_name():
    """pytest imports them by name: of two with the same name, one is not run."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert not {name for name in names if names.count(name) > 1}
