"""The commands, by name and module; only the module of the requested command is imported."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from cyclopts import App, Group, Parameter

from probekit.analysis import Reads, analyses, load
from probekit.cli.made import Made
from probekit.cli.option_panels import TITLES, OptionPanels
from probekit.functions import REPEATED
from probekit.version import VERSION

HELP = (
    "Measure what each layer of a language model encodes and how fine-tuning changes it, with controls and intervals."
    "\n\nStart with [bold]probekit demo[/], or with [bold]probekit run MODEL TASK[/], which runs cache-activations, "
    "probe, mi, plot layers and report for you."
)

BEGIN = Group.create_ordered("Getting started")
READ = Group.create_ordered("Tasks and activations")
ANALYSE = Group.create_ordered("Analyses")
SHOW = Group.create_ordered("Figures, tables and reports")
ADAPT = Group.create_ordered("Training")
PUBLISH = Group.create_ordered("Studies")
KEEP = Group.create_ordered("Reproducing and managing results")
GENERAL = Group.create_ordered("General")


@dataclass(frozen=True, slots=True)
class Command:
    """A command's place, "module:function" or "module:app"; one line of help; its group in the list of commands."""

    place: str
    help: str
    group: Group


COMMANDS: dict[str, Command] = {
    "demo": Command("probekit.cli.demo:demo", "Try probekit with a built-in model and built-in tasks, offline.", BEGIN),
    "run": Command("probekit.cli.studies:run", "Analyse each layer of a model on your tasks with one command.", BEGIN),
    "tasks": Command("probekit.cli.tasks:app", "List the tasks, check one, or write a task file for your data.", READ),
    "cache-activations": Command(
        "probekit.cli.caches:cache_activations", "Run a model on a task and store every layer's activations.", READ
    ),
    "inspect": Command("probekit.cli.caches:inspect", "Show what a cache contains.", READ),
    "verify": Command("probekit.cli.caches:verify", "Check that no byte of a cache has changed.", READ),
    "certify": Command(
        "probekit.cli.models:certify",
        "Test whether hidden states depend on the batch, or those of another tool are right.",
        READ,
    ),
    "sites": Command(
        "probekit.cli.models:sites", "Show the sites inside a model's blocks, and what proves each.", READ
    ),
    "import": Command("probekit.cli.caches:import_activations", "Turn activations of another tool into a cache.", READ),
    "export": Command(
        "probekit.cli.caches:export", "Write a cache as safetensors, zarr, npy or Parquet, with digests.", READ
    ),
    "copy-cache": Command(
        "probekit.cli.caches:copy_cache", "Copy a cache between folders and object stores, each byte checked.", READ
    ),
    "convert": Command("probekit.cli.convert:app", "Convert published ELMo and Skip-thoughts files to models.", READ),
    "plot": Command("probekit.cli.plot:app", "Draw results as figures (PDF, SVG, EPS, PNG).", SHOW),
    "table": Command("probekit.cli.table:table", "Print results as a table in a paper's layout.", SHOW),
    "report": Command("probekit.cli.pages:report", "Collect results in one HTML page.", SHOW),
    "explore": Command(
        "probekit.cli.pages:explore", "Show the layers of two models as linked maps, in one page.", SHOW
    ),
    "pretrain": Command(
        "probekit.cli.runs:pretrain", "Train a language model and its tokenizer from nothing, on plain text.", ADAPT
    ),
    "new-encoder": Command(
        "probekit.cli.made:new_encoder", "Write an untrained encoder, such as a BiLSTM, to pretrain.", ADAPT
    ),
    "pretrain-encoder": Command(
        "probekit.cli.runs:pretrain_encoder", "Train a shared encoder on one or several objectives.", ADAPT
    ),
    "train": Command("probekit.cli.runs:train", "Fine-tune a model, or train a head on its frozen layers.", ADAPT),
    "evaluate": Command("probekit.cli.runs:evaluate", "Evaluate a trained model on other examples.", ADAPT),
    "search": Command("probekit.cli.runs:search", "Search hyperparameters on dev.", ADAPT),
    "average": Command("probekit.cli.runs:average", "Average the weights of several runs into one.", ADAPT),
    "merge": Command("probekit.cli.made:merge", "Add the changed weights of a run to its base.", ADAPT),
    "study": Command("probekit.cli.studies:study", "Produce all tables and figures of a paper from one file.", PUBLISH),
    "suite": Command("probekit.cli.studies:suite", "Run many probing tasks on one or several models.", PUBLISH),
    "reproduce": Command(
        "probekit.cli.results:reproduce", "Recompute rows from their evidence card and compare them.", KEEP
    ),
    "results": Command("probekit.cli.results:results", "List results and the files that can be deleted.", KEEP),
    "clean": Command("probekit.cli.results:clean", "Delete files that can be recomputed, after asking.", KEEP),
}
COMMANDS["recheck"] = Command("probekit.cli.monitor:recheck", analyses()["recheck"].help, ANALYSE)
COMMANDS["monitor"] = Command("probekit.cli.monitor:monitor", "Score texts with a kept probe as they come.", ANALYSE)
COMMANDS["import-probe"] = Command(
    "probekit.cli.monitor:import_probe", "Turn coefficients of scikit-learn into a kept probe.", ANALYSE
)
COMMANDS |= {
    one.name: Command(f"probekit.cli.made:{one.name}", one.help, ADAPT if one.reads is Reads.RUNS else ANALYSE)
    for one in analyses().values()
    if one.name not in COMMANDS
}


def __getattr__(name: str) -> Any:
    """A command, as the parser imports it late: "probekit.cli.commands:probekit train"."""
    program, _, command = name.partition(" ")
    if program != "probekit" or command not in COMMANDS:
        raise AttributeError(name)
    found = load(COMMANDS[command].place)
    return found.command() if isinstance(found, Made) else found


def make_app(words: Sequence[str] = ()) -> App:
    """The command line. Only the command that ``words`` begin with is imported."""
    app = App(
        "probekit",
        help=HELP,
        help_format="markdown" if COMMANDS.keys() & set(words) else "rich",  # markdown takes .1 s to load
        version=_version,
        default_parameter=Parameter(negative=(), show_default=_shown),
        config=_commas,
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for place, (name, command) in enumerate(COMMANDS.items()):
        if words[:1] == [name]:
            found = __getattr__(f"probekit {name}")
            app.command(found, name=name, **_panels(found))
        else:
            app.command(
                f"{__name__}:probekit {name}", name=name, help=command.help, group=command.group, sort_key=place
            )
    app.register_install_completion_command(group=GENERAL)
    for flag in ("--help", "--version"):
        app[flag].group = GENERAL
    return app


def _panels(command: Any) -> dict[str, Any]:
    """The formatter of a command's help if its options stand in panels."""
    known = {} if isinstance(command, App) else inspect.signature(command).parameters
    options = known["options"].default if "options" in known else None
    several = any(kind.__name__ in TITLES for kind in type(options).__mro__)
    return {"help_formatter": OptionPanels(type(options))} if several else {}


def _version() -> str:
    return f"probekit {VERSION}"


def _shown(value: Any) -> str | None:
    """A default as help shows it; None for flags that are off and options that are empty."""
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return None if value is None or value is False or value == "" else str(value)


_REPEATED = REPEATED | dict.fromkeys(("results", "clean", "reproduce"), ("model",))
"""Options that are repeated, not separated by commas: also those of commands that have no recipe."""


def _commas(app: App, commands: Any, arguments: Any) -> None:
    """``--penalties 0.1,1,10``: split the values of an option that takes any number of them at commas."""
    repeated = {f"--{name.strip('_')}" for name in _REPEATED.get(commands[0].replace("-", "_") if commands else "", ())}
    for argument in arguments:
        if repeated & set(argument.names):
            continue
        hints = (argument.hint, *get_args(argument.hint))
        if any(get_origin(hint) is tuple and get_args(hint)[-1:] == (...,) for hint in hints):
            argument.tokens[:] = [
                token.evolve(value=word.strip())
                for token in argument.tokens
                for word in (_words(token.value) if token.keyword else [token.value])
            ]


def _words(text: str) -> list[str]:
    """The words between commas; an empty value stays, so that cyclopts reports it."""
    return [word for word in text.split(",") if word.strip()] or [text]
