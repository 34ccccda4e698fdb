"""What a comparison says about the data that its fits were trained on, and how its table names them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from probekit.analyses.compare import compare
from probekit.errors import UsageError
from probekit.statistics.predictions import Predictions


def fits(right, n=200, **about):
    gold = np.arange(n) % 2
    head = {"analysis": "probe", "task": "toy", "split": "dev", "model": "m", "representation": "mean", "seed": 0}
    table = pd.DataFrame({**head, "layer": [0, 1], "target": "gold", "n": n, **about})
    guessed = np.where(np.arange(n)[None] % 10 < [[5], [right]], gold, 1 - gold)
    return Predictions(table, np.arange(n).astype(str), gold, guessed, ("accuracy",))


@pytest.mark.parametrize(("n_train", "warned"), [(299, True), (376, False)])
def test_different_training_data_are_warned_of(n_train, warned, caplog):
    rows = compare(fits(9, n_train=376), fits(7, n_train=n_train)).rows
    text = "the fits differ in training data, too: 376 and 299 examples"
    assert caplog.messages == [text] * warned
    assert ("warning" in rows and set(rows["warning"]) == {text}) == warned


def test_the_table_names_random_weights_and_groups(tmp_path, call):
    """No empty field above the table, random weights in words, and groups where groups are exchanged."""
    groups = {"groups": "declared", "n_groups": 50, "largest_group": 4}
    ids = np.repeat(np.arange(50), 4)
    trained, random = fits(9, **groups), fits(7, random_weights=1, checkpoint="random-1", **groups)
    paths = [
        replace(one, groups=ids).write(tmp_path / f"{i}.examples.parquet") for i, one in enumerate((trained, random))
    ]
    shown = call("compare", *paths).out
    assert "exchanged between the fits, group by group." in shown
    assert "checkpoint ;" not in shown
    alone = call("compare", paths[1], "--against", "layer-0").out
    assert "random weights 1" in alone
    assert "random-1" not in alone


@pytest.mark.parametrize("analysis", ["structural", "pairs"])
def test_predictions_of_one_label_have_no_shuffled_labels(analysis):
    fits = pd.DataFrame([
        {"analysis": analysis, "task": "t", "split": "dev", "model": "m", "layer": layer, "target": target}
        for layer in (0, 1) for target in ("gold", "shuffled")
    ])  # fmt: skip
    said = np.random.default_rng(0).integers(2, size=(4, 50))
    table = Predictions(fits, np.arange(50).astype(str), np.ones(50, dtype=int), said, ("accuracy",))
    with pytest.raises(UsageError, match=f"the predictions of probekit {analysis} say .* all gold labels are the same"):
        compare(table, against="shuffled")
    assert len(compare(table, against="layer-0").rows) == 1
