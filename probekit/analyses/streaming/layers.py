"""What the sums of a state say of layers without a second split: CKA of all pairs, and erasers of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.similarity import OTHER
from probekit.analyses.streaming.probes import folds_of
from probekit.analyses.streaming.state import State
from probekit.erasure import Eraser, leace
from probekit.errors import UsageError
from probekit.files import FileKind, whole
from probekit.probes.protocol.summed import rest
from probekit.rows import make_rows
from probekit.similarity.from_sums import cka_from_sums
from probekit.sites import Site

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cka_rows", "eraser_rows", "erasers_of", "write_erasers"]


def cka_rows(state: State, about: Mapping[str, Any]) -> pd.DataFrame:
    """Rows of CKA, debiased and biased, of all pairs of layers: of all rows, labelled or not."""
    import pandas as pd

    names, a = state.sums.layout.names, state.sums.arrays
    n = int(a["weight"].sum())
    means = {name: a[f"centre/{name}"] + a[f"total/{name}"].sum(0) / n for name in names}
    sums = state.sums.about(means)
    products = np.array([[float((sums.product(x, y) ** 2).sum()) for y in names] for x in names])
    powers = np.array([float(np.trace(sums.product(x, x))) for x in names])
    powers[powers <= 1e-12 * n * np.array([float(m @ m) for m in means.values()])] = 0
    sites, tables = [Site.parse(name) for name in names], []
    for metric in ("cka", "cka-biased"):
        value = cka_from_sums(n, products, sums.arrays["long"], powers, debiased=metric == "cka")
        tables.append(
            pd.DataFrame(
                {
                    "metric": metric,
                    "layer_name": np.repeat(names, len(names)),
                    "value": value.ravel(),
                    "layer_b": pd.array([site.layer for site in sites] * len(names), dtype="Int64"),
                    "site_b": [site.name for site in sites] * len(names),
                    "n": n,
                }
            )
        )
    other = {f"{key}_b": about.get(key) for key in OTHER}
    head = {**about, "analysis": "similarity", "estimator": "", "target": "gold", "seed": state.spec["seed"]}
    rows = pd.concat(tables, ignore_index=True).assign(**head | other, p_adjusted=np.nan, draws=0, note="")
    for column in ("step_b", "random_weights_b", "run_seed_b", "draws"):
        rows[column] = pd.array(rows[column].tolist(), dtype="Int64")
    return make_rows(rows)


def erasers_of(state: State) -> dict[str, Eraser]:
    """The LEACE eraser of the labels of each layer, from all labelled rows."""
    a, out = state.sums.arrays, {}
    if state.counts["rows"] < 2:
        raise UsageError(f"{state.counts['rows']} rows of the data are labelled; leace needs labels.")
    y = a["y"].sum(0)
    for name in state.sums.layout.names:
        total = rest(folds_of(state, name), None)
        cross = a[f"cross/{name}"].sum(0) - np.outer(y, total.total) / total.weight
        free = total.weight - 1
        out[name] = leace(total.mean, total.scatter / free, cross.T / free)
    return out


def eraser_rows(state: State, erasers: Mapping[str, Eraser], about: Mapping[str, Any]) -> pd.DataFrame:
    """How many dimensions each eraser takes, and how much of the variance."""
    head = {
        **about, "analysis": "stream", "estimator": "leace", "target": "gold", "n": state.counts["rows"],
        "seed": state.spec["seed"],
    }  # fmt: skip
    return make_rows([
        {**head, "layer": name, "metric": metric, "value": value}
        for name, eraser in erasers.items()
        for metric, value in (("erased-dimensions", eraser.rank), ("erased-variance", eraser.variance))
    ])  # fmt: skip


def _is_erasers(path: Path) -> bool:
    with np.load(path) as file:
        return bytes(file["format"]) == FORMAT


FORMAT = b"probekit-erasers/1"
ERASERS_FILE = FileKind("a file of erasers", _is_erasers, "give the erasers another name")


def write_erasers(erasers: Mapping[str, Eraser], path: Path) -> None:
    """Write ``LAYER/mean`` (d,) and ``LAYER/projection`` (d, d) of each layer as .npz: x → mean + P (x - mean)."""
    arrays = {f"{name}/mean": eraser.mean for name, eraser in erasers.items()}
    arrays |= {f"{name}/projection": eraser.projection for name, eraser in erasers.items()}
    with whole(path, ERASERS_FILE) as new, new.open("wb") as file:
        np.savez(file, format=np.frombuffer(FORMAT, dtype=np.uint8), **arrays)  # type: ignore[arg-type]
