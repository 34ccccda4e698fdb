"""Pages name options that exist, and deny only what does not: held against the commands, options and metrics."""

import ast
import re
from functools import cache
from pathlib import Path

import probekit
from probekit.cli.commands import COMMANDS
from probekit.metrics import DERIVED, METRICS

ROOT = Path(probekit.__file__).parent.parent
PAGES = sorted(
    p for p in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/analyses/*.md")) if p.name != "api.md"
)
OTHERS = {
    *("nproc-per-node", "nnodes", "node-rank", "rdzv-backend", "rdzv-endpoint", "standalone"),  # torchrun
    *("host", "tls-ca-file", "tls-cert", "tls-key", "scheduler-file", "nthreads", "ntasks", "array", "nworkers"),
    *("help", "version", "debug", "install-completion"),
    *("dimensions", "make", "only", "rounds", "sets", "ways"),  # scripts of benchmarks/
}
"""Options of other programs on these pages, and those of every command."""
DENIAL = re.compile(r"not available|probekit does not|there is no |no counterpart|^It leaves out|; no [a-zA-Z]")
DENIED = {
    "NeuroX's default) has no counterpart": {"word-last"},
    "there is no ranking of neurons and no ablation": {"neurons", "rank-neurons", "ablate", "ablation"},
    "probekit does not patch or steer models": {"patch", "steer", "intervene"},
    "single messages by number (`masks.nth_message(-1)`) are not available": {"nth-message", "message-number"},
    "It leaves out causal interventions, sparse autoencoders": {"patch", "intervene", "sparse-autoencoder", "sae"},
    "the residual stream after the last block, before the norm | not available": set(),  # in another tool's numbering
}
"""What the pages on other tools and on decoders say that probekit lacks, with the names that would contradict them."""


@cache
def inventory() -> frozenset[str]:
    """The names of commands, options, values of options and metrics, as on the command line."""
    found = {*COMMANDS, *METRICS, *DERIVED}
    for path in (ROOT / "probekit").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        marked = any(w in text for w in ("option(", "StrEnum", "Literal[", "Annotated["))
        if path.parent.name not in ("cli", "monitors") and not marked:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                found.add(str(node.value.value))
    return frozenset(name.strip("_").replace("_", "-") for name in found)


def test_options_that_pages_name_exist():
    named = {
        (page.name, word)
        for page in PAGES
        for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
        for word in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", code)
    }
    assert len(named) > 300
    known = inventory() | {f"no-{name}" for name in inventory()} | OTHERS
    assert sorted(one for one in named if one[1] not in known) == []


def test_what_pages_deny_is_absent():
    """A page that says that something is missing is held here against what there is; new denials are added above."""
    lines = [
        line
        for name in ("from-other-tools", "decoders")
        for line in (ROOT / f"docs/{name}.md").read_text().splitlines()
    ]
    denials = [line for line in lines if DENIAL.search(line)]
    assert [line for line in denials if not any(words in line for words in DENIED)] == []
    for words, names in DENIED.items():
        assert any(words in line for line in denials), f"no page says {words!r} any more"
        assert not names & inventory(), words
    assert {"roles", "auroc", "recall-at-rate", "device-map", "shift"} <= inventory() | {"roles"}
