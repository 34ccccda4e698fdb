"""Where the task and the model of a run are found again, from any folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["own_sources", "place_of", "source_of"]


def source_of(task: str, data_dir: str | Path | None) -> dict[str, str | None]:
    """The arguments with which ``load_task`` finds a task from any folder."""
    return {
        "task": place_of(task) if ".toml" in task else task,
        "data_dir": None if data_dir is None else str(Path(data_dir).expanduser().resolve()),
    }


def place_of(name: str | Path) -> str:
    """The absolute form of a path; other names, such as hub ids, are unchanged."""
    whole, toml, domain = str(name).partition(".toml:")
    path, part = (f"{whole}.toml", f":{domain}") if toml else (str(name), "")
    return str(Path(path).expanduser().resolve()) + part if Path(path).expanduser().exists() else str(name)


def own_sources(card: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """Where the tasks that a run was trained on are found again, by name; the first one chose the epoch.

    Tasks that were defined in Python have only their name.
    """
    first = {"task": card["task"], "data_dir": None} | (card.get("source") or {})
    return {card["task"]: first} | {one["task"]: dict(one["source"]) for one in card.get("also") or ()}
