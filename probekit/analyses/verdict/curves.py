"""Layer curves of rows, and sentences on one curve, on many, and on random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.verdict.words import ALPHA, adjusted, at_least, at_most, layers
from probekit.display import shown_checkpoint, shown_model
from probekit.rows import layer_labels, layer_order
from probekit.rows.schema import states
from probekit.rows.selection import CURVE, curve_keys, over_curves

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CURVE", "Curve", "curves_of", "each", "largest", "model_in", "named", "names", "smallest"]

FEW = 4
"""Up to this many curves of a task get a sentence each; more are only counted."""
LISTED = 6
SHOWN = ("model", "checkpoint", "step", "regime", "head", "variant", "position", "representation", "estimator", "seed")


@dataclass(frozen=True)
class Curve:
    """The layers of one curve, in their order.

    Attributes
    ----------
    head : mapping
        The columns that all rows share.
    rows : DataFrame
        Rows for gold labels, one per layer.
    layers : list of str
        Names of the layers.
    value, p : ndarray
        (L,); ``p`` is corrected for all layers of all curves of the task, or of this curve.
    tests : int
        The number of these layers.
    """

    head: Mapping[Any, Any]
    rows: pd.DataFrame
    layers: list[str]
    value: np.ndarray
    p: np.ndarray
    tests: int = 1

    @property
    def random(self) -> bool:
        return str(self.head.get("random_weights", "")) not in ("", "nan", "None", "<NA>")

    def beating(self, better: np.ndarray | None = None) -> list[str]:
        """The layers shown to be better than noise."""
        shown = (self.p <= ALPHA) & (True if better is None else better)
        return [layer for layer, one in zip(self.layers, shown, strict=True) if one]

    @property
    def gaps(self) -> bool:
        """Whether layers below the last of these are missing, so that these are not "every layer"."""
        numbers = [int(name) for name in self.layers if name.isdecimal()]
        return numbers != list(range(len(numbers)))

    def subject(self, which: list[str], verb: str, verbs: str) -> str:
        """Some layers with their verb, singular or plural: "layers 2–5 beat", "every layer beats"."""
        whole = len(which) == len(self.layers) > 1 and not self.gaps
        return f"{'every layer' if whole else layers(which)} {verb if whole or len(which) == 1 else verbs}"

    @property
    def unknown(self) -> list[str]:
        """The layers without a value."""
        return [layer for layer, one in zip(self.layers, self.value, strict=True) if np.isnan(one)]

    def best(self, sign: int = 1) -> int:
        return int(np.nanargmax(sign * self.value))


def curves_of(rows: pd.DataFrame, *, corrected: bool = False) -> list[Curve]:
    """The curves of the layers of one metric, with p-values corrected for all of them: here, or already in the rows."""
    gold = rows[(rows["target"] == "gold") & rows["draw"].isna() & (rows["site"] != "")]
    found, gold = [], gold.assign(_p=gold.get("p_adjusted", np.nan) if corrected else over_curves(gold))
    for _, part in gold.groupby(curve_keys(gold), sort=False):
        curve = part.assign(_order=layer_order(part)).sort_values("_order", kind="stable")
        value, p = (curve[c].to_numpy(dtype=float) for c in ("value", "_p"))
        head = curve.iloc[0].to_dict()
        found.append(Curve(head, curve, layer_labels(curve).tolist(), value, p, len(gold)))
    return found


def each(
    trained: Sequence[Curve], random: Sequence[Curve], text: Callable[..., str], does: str, do: str
) -> Iterator[str]:
    """A sentence for each trained curve, or one for many of them, and one for random weights."""
    if len(trained) > FEW:
        yield _many(trained, does)
    else:
        for curve, name in zip(trained, names(trained), strict=True):
            yield f"{name}{text(curve, trained, random)}"
    if random:
        yield _control(random, do, trained)


def _many(curves: Sequence[Curve], does: str) -> str:
    """The number of curves with a layer that is shown to differ from noise."""
    some = [name.removesuffix(": ") for name, one in zip(names(curves), curves, strict=True) if one.beating()]
    if not some:
        known = [p for one in curves for p in one.p if np.isfinite(p)]
        least = adjusted(at_least(known), curves[0].tests) if known else "not tested"
        return f"no layer of {len(curves)} curves {does} ({least})"
    more = f" and {len(some) - LISTED} more" if len(some) > LISTED else ""
    which = "" if len(some) == len(curves) else f": {', '.join(some[:LISTED])}{more}"
    return f"in {len(some)} of {len(curves)} curves some layer {does} (p adjusted over {curves[0].tests} layers){which}"


def _control(random: Sequence[Curve], do: str, trained: Sequence[Curve]) -> str:
    """The sentence on the same network with random weights."""
    if all(np.isnan(one.p).all() for one in random):
        return f"whether layers with random weights {do} was not tested"
    found = [one.beating() for one in random]
    if not any(found):
        return f"with random weights no layer is shown to {do}"
    kinds = {tuple(str(one.head.get(c)) for c in SHOWN if c not in ("checkpoint", "seed")) for one in random}
    which = f"layers of {sum(map(bool, found))} of {len(random)} {'seeds' if len(kinds) == 1 else 'curves'}"
    who = layers(found[0]) if len(random) == 1 else which
    too = " too" if any(one.beating() for one in trained) else ""
    word = do if len(random) > 1 or len(found[0]) > 1 else do.replace("beat ", "beats ").replace("hold ", "holds ")
    return f"with random weights {who} {word}{too}"


def names(curves: Sequence[Curve]) -> list[str]:
    """Prefixes that distinguish curves, "" for a single one: "MiniLM, step 100: "."""
    if len(curves) < 2:
        return ["" for _ in curves]
    cells = [
        {c: "" if (v := str(one.head.get(c, ""))) in ("<NA>", "nan", "None") else v for c in SHOWN} for one in curves
    ]
    varying = [c for c in SHOWN if len({one[c] for one in cells}) > 1]
    show: dict[str, Callable[[str], str]] = {"seed": "seed {}".format, "model": shown_model}
    if len({shown_model(one["model"]) for one in cells}) < len({one["model"] for one in cells}):
        del show["model"]  # two folders of one name
    of_run = [c for c in varying if c not in ("regime", "head")]  # a run says which ones it has
    labels: list[list[str]] = []
    for kept in (of_run if "checkpoint" in varying else varying, varying):
        labels = [_parts(one, kept, show) for one in cells]
        if len(set(map(tuple, labels))) == len(labels):
            break
    return [f"{', '.join(parts)}: " if parts else "" for parts in labels]


def _parts(one: Mapping[str, str], kept: Sequence[str], show: Mapping[str, Callable[[str], str]]) -> list[str]:
    """What is said of a curve: of the model, its states, and the other columns that are kept."""
    state = states({"model": one["model"], **{c: one[c] for c in ("checkpoint", "step") if c in kept}})
    if "checkpoint" in kept:  # next to its checkpoints, a model itself is named as well
        state = states({**one, "step": one["step"] * ("step" in kept)})
    words = {c: show.get(c, str)(one[c]) for c in kept if one[c] and c not in ("checkpoint", "step")}
    parts = list(dict.fromkeys(filter(None, [words.pop("model", ""), *state, *words.values()])))
    return parts or ["pretrained"] * ("checkpoint" in kept)


def named(head: Mapping[Any, Any], *, run: bool = False) -> str:
    """A model and its state: "MiniLM (fine-tuned)", "MiniLM (step-100)", "MiniLM"; also with the name of its run."""
    head = {c: "" if (v := str(head.get(c, ""))) in ("<NA>", "nan", "None") else v for c in SHOWN}
    tuned, checkpoint = head["regime"] == "fine-tune", head["checkpoint"]
    state = "before training" if head["step"] == "0" else "fine-tuned"
    if tuned and run and checkpoint:
        return model_in(head["model"], state, f"run {checkpoint}")
    return model_in(head["model"], state if tuned else checkpoint if head["step"] else shown_checkpoint(checkpoint))


def model_in(model: str, *states: str) -> str:
    """A model with what is special about it in parentheses: "MiniLM (random weights)"."""
    states = tuple(state for state in states if state and state != model)  # a pretraining has the name of its run
    return f"{shown_model(model)} ({', '.join(states)})" if states else shown_model(model)


def smallest(curve: Curve) -> str:
    """The smallest corrected p of a curve without any significant layer."""
    return adjusted(at_least(curve.p), curve.tests)


def largest(curve: Curve, shown: np.ndarray | bool = True) -> str:
    """The largest corrected p of the significant layers of a curve."""
    return adjusted(at_most(curve.p[(curve.p <= ALPHA) & shown]), curve.tests)
