"""The commands, by name and place; a command's module is imported when that command is asked for, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, get_args, get_origin

from cyclopts import App, Group, Parameter

from probekit.functions import REPEATED
from probekit.version import VERSION

__all__ = ["COMMANDS", "Command", "make_app"]

HELP = """What each layer of a language model knows, how adaptation changes it, and how sure we are.

Start with `probekit demo`, or with `probekit run MODEL TASK`, which stands for `probekit cache-activations`,
`probekit probe`, `probekit mi`, `probekit plot layers` and `probekit report`."""

READ = Group.create_ordered("Read texts, store layers")
BEGIN = Group.create_ordered("Begin")
ANALYSE = Group.create_ordered("Ask what layers know")
SHOW = Group.create_ordered("Show it")
ADAPT = Group.create_ordered("Adapt models")
PUBLISH = Group.create_ordered("Tables and figures of a paper")
KEEP = Group.create_ordered("Trust and tidy results")


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is, "module:function" or "module:app"; one line of help; the part of the list it stands in."""

    place: str
    help: str
    group: Group


COMMANDS: dict[str, Command] = {
    "tasks": Command("probekit.cli.tasks:app", "List the tasks, check one, or write a task file for your data.", READ),
    "cache-activations": Command(
        "probekit.cli.cache:cache_activations", "Run a model over a task and store every layer's activations.", READ
    ),
    "inspect": Command("probekit.cli.cache:inspect", "Show what a cache holds.", READ),
    "verify": Command("probekit.cli.cache:verify", "Check that no byte of a cache has changed.", READ),
    "certify": Command("probekit.cli.certify:certify", "Measure what a model's hidden states depend on.", READ),
    "convert": Command("probekit.cli.convert:app", "Published files of ELMo and Skip-thoughts to model folders.", READ),
    "run": Command("probekit.cli.run:run", "What each layer of a model knows of a task: all of it at once.", BEGIN),
    "demo": Command("probekit.cli.demo:demo", "Try everything once, without data or a network.", BEGIN),
    "probe": Command("probekit.cli.probe:probe", "Fit a diagnostic classifier on each layer.", ANALYSE),
    "mi": Command("probekit.cli.mi:mi", "Measure in bits what each layer tells about the labels.", ANALYSE),
    "mdl": Command("probekit.cli.mdl:mdl", "In how many bits labels can be sent, given a layer.", ANALYSE),
    "compare": Command("probekit.cli.compare:compare", "Paired differences on the same examples.", ANALYSE),
    "summary": Command("probekit.cli.compare:summary", "Layer curves in a few numbers.", ANALYSE),
    "domains": Command("probekit.cli.domains:domains", "Measure how far the texts of domains are apart.", ANALYSE),
    "plot": Command("probekit.cli.plot:app", "Draw rows as figures, vector and bitmap.", SHOW),
    "table": Command("probekit.cli.table:table", "Show rows as a table in a paper's form.", SHOW),
    "report": Command("probekit.cli.report:report", "Put results into one HTML page.", SHOW),
    "train": Command("probekit.cli.train:train", "Fine-tune a model, or train a head on its frozen layers.", ADAPT),
    "evaluate": Command("probekit.cli.train:evaluate", "Evaluate a trained model on other examples.", ADAPT),
    "search": Command("probekit.cli.search:search", "Search hyper-parameters on dev.", ADAPT),
    "guidelines": Command(
        "probekit.cli.guidelines:guidelines", "Fine-tuning or feature extraction? Compare runs.", ADAPT
    ),
    "study": Command("probekit.cli.study:app", "Whole tables and figures of a paper, from one file.", PUBLISH),
    "reproduce": Command("probekit.cli.reproduce:reproduce", "Make rows again by their card, and compare.", KEEP),
    "results": Command("probekit.cli.results:results", "List results, and what of them may be deleted.", KEEP),
    "clean": Command("probekit.cli.results:clean", "Delete what can be made again, after asking.", KEEP),
}


def make_app(words: Sequence[str] = ()) -> App:
    """The command line. The command that ``words`` begin with is imported, the others stay names."""
    app = App(
        "probekit",
        help=HELP,
        help_format="markdown",
        version=_version,
        default_parameter=Parameter(negative=(), show_default=_shown),
        config=_commas,
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, command in COMMANDS.items():
        if words[:1] == [name]:
            module, _, attribute = command.place.partition(":")
            app.command(getattr(import_module(module), attribute), name=name)
        else:
            app.command(command.place, name=name, help=command.help, group=command.group)
    app.register_install_completion_command()
    return app


def _version() -> str:
    return f"probekit {VERSION}"


def _shown(value: Any) -> str | None:
    """A default in help: not that a flag is off, or that nothing is given."""
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return None if value is None or value is False or value == "" else str(value)


_REPEATED = REPEATED | dict.fromkeys(("results", "clean", "reproduce"), ("model",))
"""Of commands, those that are no recipes as well."""


def _commas(app: App, commands: Any, arguments: Any) -> None:
    """``--penalties 0.1,1,10``: an option that takes any number of values takes them with commas, or is repeated."""
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
    """The words between commas; an option that was given nothing keeps that, to be told so."""
    return [word for word in text.split(",") if word.strip()] or [text]
