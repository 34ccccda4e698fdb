"""The table of evaluated examples: what is written is read again, and other files are refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from probekit.errors import DataError, UsageError
from probekit.rows import make_rows, read_rows, write_rows
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions, join


def fits(layers=4, **columns):
    names = [str(i) for i in range(layers - 1)] + ["final_norm"]
    about = {"task": "toy", "split": "dev", "model": "m", "checkpoint": "", "step": None, "representation": "mean"}
    rest = {"estimator": "logistic", "target": "gold", "penalty": 0.1 / 3, "seed": 0, "n_train": 90}
    return pd.DataFrame([{**about, "layer": n, **rest, **columns} for n in names])


def table(n=30, layers=4, seed=0, own_gold=False, **columns):
    rng = np.random.default_rng(seed)
    gold = rng.integers(2, size=(layers, n) if own_gold else n)
    predicted = rng.integers(2, size=(layers, n))
    ids = np.array([f"dev-{i}" for i in range(n)])
    loss = rng.exponential(size=(layers, n)).astype(np.float32)
    frame = fits(layers, **columns)
    return Predictions(frame, ids, gold, predicted, ("accuracy", "matthews"), np.arange(n) // 3, loss, ("no", "yes"))


@pytest.mark.parametrize("own_gold", [False, True])
def test_what_is_written_is_read(tmp_path, own_gold, monkeypatch):
    monkeypatch.setattr("probekit.statistics.predictions.ROWS_AT_ONCE", 70)  # two fits at a time
    wrote = table(own_gold=own_gold)
    read = Predictions.read(wrote.write(tmp_path / "a.examples.parquet"))
    for name in ("ids", "gold", "predicted", "groups", "log_loss"):
        np.testing.assert_array_equal(getattr(read, name), getattr(wrote, name))
    assert read.log_loss.dtype == np.float32
    assert (read.metrics, read.label_names) == (wrote.metrics, wrote.label_names)
    assert read.fits["penalty"].tolist() == wrote.fits["penalty"].tolist()
    assert read.fits["layer"].tolist()[:3] == [0, 1, 2]
    assert read.fits["layer"].isna().tolist() == [False, False, False, True]
    assert [p.name for p in tmp_path.iterdir()] == ["a.examples.parquet"]


def test_opens_in_pandas_as_one_row_a_fit_and_example(tmp_path):
    wrote = table()
    rows = pd.read_parquet(wrote.write(tmp_path / "a.parquet"))
    assert len(rows) == 4 * 30
    part = rows[rows["layer"] == 2]
    assert part["id"].tolist() == wrote.ids.tolist()
    np.testing.assert_array_equal(part["predicted"], wrote.predicted[2])
    pd.testing.assert_frame_equal(rows, wrote.frame(), check_dtype=False, check_categorical=False)


def test_numbers_and_no_losses(tmp_path):
    e = table()
    numbers = Predictions(e.fits, e.ids, e.gold + 0.25, e.predicted * 0.1, ("pearson",))
    read = Predictions.read(numbers.write(tmp_path / "a.parquet"))
    np.testing.assert_array_equal(read.predicted, numbers.predicted)
    np.testing.assert_array_equal(read.gold, numbers.gold)
    assert read.log_loss is None
    assert read.groups is None


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"absent\.parquet: does not exist"):
        Predictions.read(tmp_path / "absent.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="not a file of evaluated examples"):
        Predictions.read(tmp_path / "rows.parquet")
    whole = table().write(tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"torn\.parquet: cannot be read"):
        Predictions.read(tmp_path / "torn.parquet")
    with pytest.raises(UsageError, match=r"written as \.parquet"):
        table().write(tmp_path / "a.csv")


def test_shapes_must_go_together():
    e = table()
    with pytest.raises(UsageError, match=r"predicted has the shape \(3, 30\); expected 4 fits of 30"):
        Predictions(e.fits, e.ids, e.gold, e.predicted[:3], e.metrics)


def test_join_aligns_by_id():
    a, b = table(model="a"), table(seed=1, model="b")
    b = Predictions(b.fits, a.ids, a.gold, b.predicted, b.metrics, b.groups, b.log_loss, b.label_names)
    order = np.random.default_rng(0).permutation(30)
    shuffled = Predictions(
        b.fits, b.ids[order], b.gold[order], b.predicted[:, order], b.metrics, b.groups[order], b.log_loss[:, order],
        b.label_names,
    )  # fmt: skip
    both = join(a, shuffled)
    np.testing.assert_array_equal(both.predicted, np.concatenate([a.predicted, b.predicted]))
    np.testing.assert_array_equal(both.gold, np.broadcast_to(a.gold, (8, 30)))
    assert both.fits["source"].tolist() == [0] * 4 + [1] * 4
    other = Predictions(
        b.fits, np.char.add(b.ids, "x"), b.gold, b.predicted, b.metrics, b.groups, label_names=("no", "yes")
    )
    with pytest.raises(UsageError, match="different examples"):
        join(a, other)


def test_what_version_0_1_wrote_is_read():
    """A model and one of random weights, two shufflings of each; the differences are those that 0.1 found."""
    kept = Predictions.read(Path(__file__).parent.parent / "golden" / "probekit-examples-1.examples.parquet")
    drawn = kept.fits[kept.fits["target"] == "shuffled"]
    assert set(drawn["draw"]) == {0, 1}
    assert set(kept.fits["random_weights"].dropna()) == {3}
    assert kept.fits["layer"].dropna().unique().tolist() == [0, 1, 2, 3]
    how = CompareOptions(against="random", metric="log-loss", tails="better", correction="holm", resamples=200)
    rows = compare_predictions(kept, options=how)
    assert rows["value"].tolist() == [
        -0.059141124985873386,
        0.21934158164680684,
        0.06614227763810371,
        0.07247923983001636,
    ]
    assert rows["p_adjusted"].tolist() == pytest.approx([0.179, 1, 1, 1], abs=0.1)  # of 200 draws, four times


@pytest.mark.slow
@pytest.mark.parametrize("what", ["predictions", "rows"])
def test_a_flipped_bit_is_told_or_changes_nothing(tmp_path, what):
    wrote = table(n=120)
    path = tmp_path / "a.parquet"
    if what == "predictions":
        wrote.write(path)
    else:
        row = {"task": "t", "split": "dev", "model": "m", "representation": "mean", "estimator": "logistic", "n": 9}
        row |= {"analysis": "probe", "metric": "accuracy", "target": "gold"}
        write_rows(make_rows([{**row, "layer": i, "value": i / 7} for i in range(40)]), path, {})

    def read():
        return Predictions.read(path).frame() if what == "predictions" else read_rows(path)

    held, whole, told = read(), path.read_bytes(), 0
    for at in np.random.default_rng(0).integers(4, len(whole) - 8, 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            found = read()
        except DataError:
            told += 1
            continue
        pd.testing.assert_frame_equal(found, held)
    assert told > 5


def test_what_a_file_says_of_itself_is_checked_where_it_has_a_digest(tmp_path):
    path = table().write(tmp_path / "a.examples.parquet")
    whole = parquet.read_table(path)
    about = json.loads(whole.schema.metadata[b"probekit"])
    mark = about.pop("probekit")
    before = json.dumps(about).encode()  # as files were that had no digest
    parquet.write_table(whole.replace_schema_metadata({b"probekit": before}), path)
    assert Predictions.read(path).metrics == table().metrics
    changed = json.dumps(about | {"metrics": ["f1"], "probekit": mark}).encode()
    parquet.write_table(whole.replace_schema_metadata({b"probekit": changed}), path)
    with pytest.raises(DataError, match="its metadata were changed"):
        Predictions.read(path)
