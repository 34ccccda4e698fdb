"""Help in which each class of options has a panel of its own."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any

from cyclopts.help import DefaultFormatter, HelpPanel

TITLES = {"Hyperparameters": "Training", "TrainOptions": "Data and run", "SignalOptions": "More signal"}
"""Titles of panels, by class; those of other classes are their names without "Options"."""


class OptionPanels(DefaultFormatter):
    """A formatter that divides the options of a dataclass by the class that declares them.

    Required options come first, then the dataclass, then the classes that it extends.
    """

    def __init__(self, options: type) -> None:
        super().__init__()
        self.panels: dict[str, str] = {}
        for kind in filter(is_dataclass, options.__mro__):
            title = TITLES.get(kind.__name__, kind.__name__.removesuffix("Options"))
            own = set(inspect.get_annotations(kind))
            self.panels |= {f"--{f.name.replace('_', '-')}": title for f in fields(kind) if f.name in own}

    def __call__(self, console: Any, options: Any, panel: HelpPanel) -> None:
        """Print a panel, or several in place of that of the options."""
        rest = str(panel.title)
        parts: dict[str, list[Any]] = {title: [] for title in (rest, *self.panels.values())}
        for entry in panel.entries:
            names = [name for name in entry.names if re.match("--", name)]
            parts[next((self.panels[n] for n in names if n in self.panels), rest)].append(entry)
        for title, entries in parts.items():
            if entries:
                part = HelpPanel(title=title, entries=entries, format=panel.format, description=panel.description)
                super().__call__(console, options, part)
