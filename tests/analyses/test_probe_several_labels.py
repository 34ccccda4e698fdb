"""``probekit probe`` on texts with several labels or numbers: from texts through caches to rows, table and figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import probekit
from probekit.activations import ActivationCache
from probekit.activations.inspection import inspect
from probekit.errors import ProbekitError, UsageError
from probekit.statistics.predictions import Predictions, join
from probekit.tasks.task import Example, Split, Task, TaskKind
from probekit.view import tables

WORDS = {"joy": ("glad", "smile"), "fear": ("panic", "scared"), "rare": ("zebra",)}


def task(*, numbers: bool) -> Task:
    """Labels that words tell, or how many of them there are, and the last text of train unlabelled."""
    splits = {}
    for split, n, seed in (("train", 90, 0), ("dev", 60, 1)):
        rng, found = np.random.default_rng(seed), []
        for i in range(n):
            holds = rng.random(3) < (0.5, 0.4, 0.1)
            words = [str(rng.choice(some)) for some, yes in zip(WORDS.values(), holds, strict=True) if yes]
            text = " ".join(rng.permutation([*words, *rng.choice(list("abcdefghijklmnop"), 6, replace=False)]))
            label = tuple(map(float, holds + rng.normal(size=3) / 9)) if numbers else tuple(np.flatnonzero(holds))
            found.append(Example(f"{split}{i}", text, None if (split, i) == ("train", 89) else label))
        splits[split] = Split(split, tuple(found))
    kind = TaskKind.MULTI_OUTPUT if numbers else TaskKind.MULTI_LABEL
    return Task("feelings", kind, splits, tuple(WORDS), ("pearson",) if numbers else ("micro-f1", "macro-f1"))


@pytest.mark.parametrize("numbers", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_from_texts_to_rows(tiny_bert: Path, tmp_path: Path, numbers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    of = task(numbers=numbers)
    paths = [probekit.cache_activations(tiny_bert, of, split, out=tmp_path / f"{split}.h5").path for split in of.splits]
    with ActivationCache(paths[0]) as cache:
        np.testing.assert_array_equal(cache.label_values, of.labels("train"))
        assert (cache.labels == -1).all()
        assert "rare: " in inspect(paths[0])["labels"]
    result = probekit.probe(*paths, controls=1, resamples=100, layers=(0, 1), groups="none")
    rows = result.rows
    main = "pearson" if numbers else "micro-f1"
    gold = rows[(rows["metric"] == main) & (rows["layer"] == 0) & (rows["target"] == "gold")]
    assert gold["value"].item() > 0.4
    assert gold["n"].item() == 60
    alone = rows[rows["metric"].str.startswith("by-label(") & (rows["layer"] == 0)]
    assert alone["label"].tolist() == list(WORDS)
    assert alone["support"].tolist() == ([60] * 3 if numbers else (of.labels("dev") == 1).sum(0).tolist())
    grids = [grid for grid, _ in tables("probe", rows, {})]
    assert [column.name for column in grids[1].columns[:2]] == ["label", "examples"]
    assert len(probekit.plot("layers", result, by="label").axes) == 3
    (kept,) = result.save(tmp_path / "rows.parquet").predictions
    again = Predictions.read(tmp_path / "rows.examples.parquet")
    np.testing.assert_array_equal(again.of_label, kept.of_label)
    assert again.of_label[:3].tolist() == list(WORDS)
    monkeypatch.setattr("probekit.statistics.predictions.ONCE", ("id", "group", "sentence", "prompt"))
    monkeypatch.setattr("probekit.statistics.predictions.VALUES", ("id", "group", "gold", "predicted", "log_loss"))
    before = Predictions.read(tmp_path / "rows.examples.parquet")  # as a file without the column
    np.testing.assert_array_equal(before.of_label, kept.of_label)
    with pytest.raises(UsageError, match="only one of the two says which label"):
        join(kept, replace(kept, of_label=None))
    with pytest.raises(ProbekitError, match="feelings has several .*, which only probekit probe and probekit train"):
        probekit.mdl(paths[0])  # other analyses read one label
