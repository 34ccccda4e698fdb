"""The order in which layers are trained, as text: ``head=2,blocks:top-down,all``. Importing this module is cheap."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from probekit.errors import UsageError

GRADUAL = "head,layers:top-down"
ORDERS = {
    "all": "all",
    "top": "head",
    "gradual": GRADUAL,
    "chain-thaw": "head,layers:bottom-up:alone,all",
    "sequential": "head,body,all",
}
"""Orders by name: of everything, of the head only, and those of Howard & Ruder (2018, section 3.3), Felbo et al. (2017)
and Chronopoulou et al. (2019)."""

_WHOLE, _SERIES, _WAYS = ("head", "body", "embeddings", "blocks", "layers", "all"), ("blocks", "layers"), (
    "top-down", "bottom-up",
)  # fmt: skip
_GRAMMAR = (
    "stages separated by commas: head, embeddings, blocks, layers (blocks and embeddings), body (all but the "
    "embeddings) or all; blocks and layers also :top-down or :bottom-up, one after another, and then :alone; "
    "each with =EPOCHS"
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Some epochs with the same trained groups.

    Attributes
    ----------
    groups : frozenset[int]
        The trained groups, counted from the bottom.
    epochs : int | None
        Number of epochs; None for all remaining ones.
    """

    groups: frozenset[int]
    epochs: int | None


def check_order(order: str) -> None:
    """Raise UsageError if this is not an order."""
    for text in ORDERS.get(order, order).split(","):
        _parsed(text, order)


def plan(order: str, names: Sequence[str]) -> list[Stage]:
    """The stages of an order for layers with these names, bottom to top; the last one takes all remaining epochs.

    Parameters
    ----------
    order : str
        A key of :data:`ORDERS`, or stages separated by commas. ``blocks:top-down`` trains the head and one block more
        in each epoch, from the top; with ``:alone`` each block by itself. ``=2`` gives each step two epochs.
    names : Sequence[str]
        "embeddings", "block 1" …, and the head last; stages without any of them are left out.

    Raises
    ------
    UsageError
        For an unknown stage, and if no stage has a layer of ``names``.

    Examples
    --------
    >>> from probekit.adaptation.optimisation.order import plan
    >>> [sorted(stage.groups) for stage in plan("head,blocks:top-down", ["embeddings", "block 1", "block 2", "head"])]
    [[3], [2, 3], [1, 2, 3]]
    """
    stages: list[Stage] = []
    for text in ORDERS.get(order, order).split(","):
        what, way, alone, epochs = _parsed(text, order)
        for groups in _steps(what, way, alone, names):
            if groups and epochs:
                stages.append(Stage(groups, epochs))
    while len(stages) > 1 and stages[-1].groups == stages[-2].groups:
        stages.pop()
    if not stages:
        raise UsageError(f"the order {order!r} names none of the layers that this run trains: {', '.join(names)}.")
    return [*stages[:-1], Stage(stages[-1].groups, None)]


def shown_plan(stages: Sequence[Stage], names: Sequence[str]) -> str:
    """Which layers each epoch trains, counted from 1: "1: head; 2: block 2, head; from 3: all layers"."""
    parts, epoch = [], 1
    for stage in stages:
        last = None if stage.epochs is None else epoch + stage.epochs - 1
        when = f"from {epoch}" if last is None else str(epoch) if last == epoch else f"{epoch}-{last}"
        trained = [names[i] for i in sorted(stage.groups)]
        parts.append(f"{when}: {'all layers' if len(trained) == len(names) else ', '.join(trained)}")
        epoch += stage.epochs or 0
    return "; ".join(parts)


def _parsed(text: str, order: str) -> tuple[str, str, bool, int]:
    """The layers of a stage, the direction ("" for all at once), whether each by itself, and the epochs of a step."""
    found = re.fullmatch(r"([a-z]+)(?::([a-z-]+))?(:alone)?(?:=(\d+))?", text.strip())
    if found is None or found[1] not in _WHOLE or (found[2] and (found[1] not in _SERIES or found[2] not in _WAYS)):
        wrong = f"{text.strip()!r} is not a stage" if text.strip() else "a stage is empty"
        raise UsageError(f"order is {order!r}; {wrong}. Give a name ({', '.join(ORDERS)}) or {_GRAMMAR}.")
    return found[1], found[2] or "", bool(found[3]), 1 if found[4] is None else int(found[4])


def _steps(what: str, way: str, alone: bool, names: Sequence[str]) -> list[frozenset[int]]:
    """The trained groups of each step of a stage."""
    every = range(len(names))
    head = frozenset(every[-1:])
    chosen = {
        "all": [*every],
        "body": [i for i in every if names[i] != "embeddings"],
        "head": [*head],
        "embeddings": [i for i in every if names[i] == "embeddings"],
        "blocks": [i for i in every if names[i].startswith("block ")],
        "layers": [i for i in every if i not in head],
    }[what]
    if not way:
        return [frozenset(chosen)]
    ordered = chosen[::-1] if way == "top-down" else chosen
    if alone:
        return [frozenset({i}) for i in ordered]
    return [head.union(ordered[: n + 1]) for n in range(len(ordered))]
