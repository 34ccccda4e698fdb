"""What a training logged, as rows: one measured number each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from probekit.adaptation.runs.predictions import Said
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["rows_of"]


def rows_of(
    log: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
    metrics: Sequence[str],
    *,
    splits: Sequence[str | None],
    sizes: Mapping[str, Mapping[str, int]],
    layers: Sequence[str] = (),
    kept: int,
    said: Mapping[str, Said],
) -> pd.DataFrame:
    """Rows of a training log, as :func:`probekit.rows.make_rows` makes them.

    Each evaluation gives the metrics and, where layers are mixed, ``mix-weight`` by layer and ``mix-gamma``. The loss
    on train is the mean since the entry before. ``kept`` marks the weights that the run ended with, whose metrics have
    intervals; ``epoch`` counts the passes over train.

    log : of :class:`probekit.adaptation.training.trainer.Fitted`; about : columns of all rows
    metrics : names, the loss's last (``log-loss``, nats, or ``mean-squared-error``)
    splits : names of train, dev and test; said : of what was kept, by split
    sizes : by split ``n``, the examples, and ``unread_words``, of which there was no piece to tag: the metrics of word
        tags are over the other words, so that they compare with published numbers only where it is 0
    """
    train, dev, held_out = splits
    records: list[dict[str, Any]] = []

    def add(split: Any, entry: Mapping[str, Any], metric: str, value: float, **more: Any) -> None:
        place = {"step": entry["step"], "epoch": entry["epoch"], "kept": entry["step"] == kept}
        records.append(
            {**about, **place, "split": split, "layer": None, "metric": metric, "value": value, **sizes[split], **more}
        )

    def final(split: Any, name: str) -> dict[str, float]:
        return dict(zip(("ci_low", "ci_high"), said[split].interval(name), strict=True))

    found = {entry["step"]: entry for entry in log if "eval_loss" in entry}
    for entry in log:
        if "loss" in entry:
            add(train, entry, metrics[-1], entry["loss"])
    for entry in found.values():
        for name in metrics[:-1]:
            add(dev, entry, name, entry[f"eval_{name}"], **(final(dev, name) if entry["step"] == kept else {}))
        add(dev, entry, metrics[-1], entry["eval_loss"])
        for i, layer in enumerate(layers):
            add(dev, entry, "mix-weight", entry[f"eval_mix_{i}"], layer=layer)
        if layers:
            add(dev, entry, "mix-gamma", entry["eval_mix_gamma"])
    if held_out is not None:
        test = said[held_out].metrics
        for name in metrics[:-1]:
            add(held_out, found[kept], name, test[name], **final(held_out, name))
        add(held_out, found[kept], metrics[-1], test["loss"])
    return make_rows(records)
