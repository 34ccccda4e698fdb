"""Rows: columns, dtypes, files and the evidence card."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.errors import DataError, UsageError
from probekit.files import digest_of_content
from probekit.recipe import Read, Recipe
from probekit.rows import (
    COLUMNS,
    Result,
    as_rows,
    card_path,
    check_out,
    layer_labels,
    make_rows,
    read,
    read_card,
    read_rows,
    write_rows,
)
from probekit.rows.card import make_card, revision
from probekit.rows.examples import told_by
from probekit.rows.families import families

STUDIES = Path(__file__).parents[1] / "figures" / "studies"
CARD = {"words": "probekit probe a.h5 b.h5"}


def record(**change):
    base = {
        "task": "NA",
        "split": "dev",
        "model": "tiny",
        "layer": "10",
        "representation": "mean",
        "estimator": "logistic",
        "target": "gold",
        "metric": "accuracy",
        "value": 0.1 + 0.2,
        "n": 7,
    }
    return base | change


@pytest.fixture
def rows():
    layers = ["10", 2, "final_norm", None, np.int64(0)]
    return make_rows([record(layer=name, penalty=0.5, note="") for name in layers])


def test_columns_and_dtypes(rows):
    assert list(rows.columns) == [*COLUMNS, "penalty", "note"]
    assert rows["layer"].tolist() == [10, 2, pd.NA, pd.NA, 0]
    assert rows["site"].tolist() == ["resid_post", "resid_post", "final_norm", "", "resid_post"]
    assert layer_labels(rows).tolist() == ["10", "2", "final_norm", "", "0"]
    assert {c: str(rows[c].dtype) for c in ("task", "layer", "step", "value", "ci_low", "seed", "n")} == {
        "task": "string", "layer": "Int64", "step": "Int64", "value": "float64", "ci_low": "float64", "seed": "Int64",
        "n": "Int64",
    }  # fmt: skip
    assert rows["checkpoint"].tolist() == [""] * 5  # never missing: grouping by it must not drop rows


def test_rows_made_again_are_the_same_and_what_was_set_since_is_completed(rows):
    again = make_rows(rows)
    pd.testing.assert_frame_equal(again, rows)
    again["value"] = 0.0  # in a table of its own
    assert rows["value"].tolist() == [0.1 + 0.2] * 5
    nowhere = rows.assign(site=rows["site"].where(rows["site"] == "", ""))
    assert make_rows(nowhere)["site"].tolist() == ["resid_post", "resid_post", "", "", "resid_post"]
    nameless = rows.assign(model=rows["model"].mask(np.arange(5) == 0))
    assert make_rows(nameless)["model"].tolist() == ["", *["tiny"] * 4]
    assert make_rows(rows.assign(raw="0.5"))["raw"].tolist() == [0.5] * 5
    assert make_rows(rows[::-1]).index.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="row 1: the interval is upside down"):
        make_rows(rows.assign(ci_low=1.0, ci_high=0.5))


def test_layers_sort_as_numbers(rows):
    assert layer_labels(rows.sort_values("layer")).tolist() == ["0", "2", "10", "final_norm", ""]


def test_no_rows_have_the_columns_too():
    assert list(make_rows([]).columns) == list(COLUMNS)


def test_missing_columns_are_named():
    without = {k: v for k, v in record().items() if k not in {"metric", "n"}}
    with pytest.raises(DataError, match="lack the columns metric, n"):
        make_rows([without])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": "high"}, "row 2, column 'value': 'high' is not a number"),
        ({"n": 2.5}, "row 2, column 'n': .*2.5.* is not a whole number"),
        ({"ci_low": 0.5, "ci_high": 0.4}, "row 2: the interval is upside down"),
    ],
)
def test_what_is_no_number_is_an_error(change, message):
    with pytest.raises(DataError, match=message):
        make_rows([record(ci_low=0.1, ci_high=0.2), record(**change)])


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_files_give_the_rows_back(rows, tmp_path, suffix):
    path = write_rows(rows, tmp_path / "new" / f"rows{suffix}", CARD)
    pd.testing.assert_frame_equal(read_rows(path).drop(columns="note"), rows.drop(columns="note"))
    assert read_rows(path)["value"].iloc[0] == 0.1 + 0.2  # to the last bit
    assert {p.name for p in path.parent.iterdir()} == {f"rows{suffix}", f"rows{suffix}.json"}
    both = read_rows(path, path)
    assert len(both) == 10
    assert both.index.is_unique


def test_the_card_says_how_to_make_the_rows_again(rows, tmp_path):
    defaults = {"folds": 5, "span_pair": "sides", "cosine": True, "tfidf": True, "through": None}
    recipe = Recipe("probe", {"train": "a b.h5", "dev": "c.h5"}, defaults)
    reads = [Read("a b.h5", "cache", "abc123", {"spec": {"n": 3}})]
    path = write_rows(rows, tmp_path / "rows.parquet", make_card(recipe, reads, {"fit": 1.23456}))
    stored = read_card(path)
    assert stored["words"] == "probekit probe 'a b.h5' c.h5"
    assert Recipe.from_json(stored["recipe"]) == recipe
    assert stored["reads"] == [{"path": "a b.h5", "kind": "cache", "digest": "abc123", "spec": {"n": 3}}]
    assert stored["seconds"] == {"fit": 1.235}
    assert stored["git"] == revision()  # of the code, wherever one stands
    assert stored["rows"]["count"] == 5
    assert stored["versions"]["numpy"] == np.__version__
    assert stored["machine"]["blas"]


def test_a_probe_of_before_has_no_baseline_of_today():
    old = {"function": "probe", "arguments": {"train": "a.h5", "dev": "b.h5"}, "defaults": {"folds": 5}}
    recipe = Recipe.from_json(old)
    assert {name: recipe.defaults[name] for name in ("cosine", "tfidf")} == {"cosine": False, "tfidf": False}
    assert recipe.identity() == Recipe("probe", old["arguments"], {"folds": 5}).identity()


def test_the_card_knows_the_revision_of_the_code(tmp_path, monkeypatch):
    """Not that of a repository that one happens to stand in."""
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    revision.cache_clear()
    assert head not in str(revision())
    code = subprocess.run(
        ["git", "-C", Path(probekit.__file__).parent, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    assert (revision() or "").removesuffix("-dirty") == code.stdout.strip()


def test_two_files_of_one_stem_have_a_card_each_and_no_other_file_is_replaced(rows, tmp_path):
    parquet, csv = (write_rows(rows, tmp_path / name, CARD) for name in ("x.parquet", "x.csv"))
    assert read_card(parquet)["rows"]["file"] == "x.parquet"
    assert read_card(csv)["rows"]["file"] == "x.csv"
    other = tmp_path / "study.parquet.json"
    other.write_text('{"title": "mine"}')
    for attempt in (check_out, lambda path: write_rows(rows, path, CARD)):
        with pytest.raises(UsageError, match="is not an evidence card that probekit wrote, so probekit does not"):
            attempt(tmp_path / "study.parquet")
    assert other.read_text() == '{"title": "mine"}'
    assert not (tmp_path / "study.parquet").exists()


def test_a_result_that_was_read_can_be_saved_again(rows, tmp_path):
    """Its card tells of the new file, and of how the rows were made as before."""
    path = write_rows(rows, tmp_path / "rows.parquet", {"words": "probekit probe a.h5 b.h5"})
    result = probekit.read(path)
    result.save(tmp_path / "again.csv")
    card = read_card(tmp_path / "again.csv")
    assert (card["rows"]["file"], card["words"]) == ("again.csv", "probekit probe a.h5 b.h5")


def test_a_card_of_other_rows_is_refused(rows, tmp_path):
    path = write_rows(rows, tmp_path / "rows.parquet", CARD)
    rows.iloc[:1].to_parquet(path)
    with pytest.raises(DataError, match="describes other rows"):
        read_card(path)
    card_path(path).unlink()
    with pytest.raises(DataError, match="no evidence card"):
        read_card(path)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_rows_changed_by_hand_are_told_by_every_reader(rows, tmp_path, caplog, name):
    path = write_rows(rows, tmp_path / name, CARD)
    readers = (probekit.read, probekit.read_rows, as_rows, lambda p: read_rows(p, p))
    for reader in readers:
        reader(path)
    assert not caplog.records
    changed = rows.assign(value=0.999)
    changed.to_csv(path, index=False) if name.endswith("csv") else changed.to_parquet(path)
    for reader in readers:
        caplog.clear()
        reader(path)
        assert f"{path} has changed since {name}.json was written" in caplog.text


def test_numbers_that_another_program_made_text_of_are_numbers_again(rows, tmp_path):
    more = rows.assign(n_train=[90] * len(rows), converged=[False] * len(rows), n=rows["n"].astype(str))
    more[["n_train", "converged"]].astype(str).join(more.drop(columns=["n_train", "converged"])).to_parquet(
        tmp_path / "a.parquet"
    )
    read = read_rows(tmp_path / "a.parquet")
    assert set(read["n_train"]) == {90}
    assert not read["converged"].any()
    more.assign(n_train="many").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: row 1, column 'n_train': 'many' is not a number"):
        read_rows(tmp_path / "b.parquet")
    more.assign(converged="perhaps").to_csv(tmp_path / "c.csv")
    with pytest.raises(DataError, match="column 'converged': 'perhaps' is neither true nor false"):
        read_rows(tmp_path / "c.csv")


def test_a_failed_write_leaves_the_old_file(rows, tmp_path):
    path = write_rows(rows, tmp_path / "rows.parquet", CARD)
    before = path.read_bytes(), card_path(path).read_bytes()
    loop = {}
    loop["self"] = loop  # no JSON
    with pytest.raises(ValueError, match="Circular"):
        write_rows(rows.iloc[:1], path, loop)
    assert before == (path.read_bytes(), card_path(path).read_bytes())
    assert len(list(tmp_path.iterdir())) == 2


def test_wrong_files(rows, tmp_path):
    with pytest.raises(UsageError, match=r"\.parquet or \.csv, not '\.xlsx'"):
        write_rows(rows, tmp_path / "rows.xlsx", {})
    (tmp_path / "cache.h5").write_bytes(b"")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "text.csv").write_text(",".join(record()) + "\n" + ",".join(str(v) for v in record(value="x").values()))
    (tmp_path / "rows.json").write_text(json.dumps({}))
    for name, message in {
        "cache.h5": "activation cache, and rows .results. are needed. Make them: probekit probe cache.h5",
        "torn.parquet": "cannot be read as Parquet",
        "other.csv": "other.csv: rows lack the columns task",
        "text.csv": "text.csv: row 1, column 'value': 'x' is not a number",
        "absent.csv": "does not exist",
        "rows.json": "not '.json'",
    }.items():
        with pytest.raises(DataError, match=message):
            read_rows(tmp_path / name)
    with pytest.raises(UsageError, match="no file"):
        read_rows()


def test_where_nothing_can_be_written_is_said_before_the_work(tmp_path):
    check_out(None)
    check_out(tmp_path / "new" / "rows.parquet")
    (tmp_path / "rows.csv").mkdir()
    for path, word in (
        ("rows.csv", "a folder; it must be a file"),
        ("rows.txt", "parquet or .csv"),
        ("new/file/rows.csv", "cannot write to"),
    ):
        (tmp_path / "new" / "file").touch()
        with pytest.raises(UsageError, match=word):
            check_out(tmp_path / path)


def test_a_file_that_is_none_of_ours_is_left_alone(rows, tmp_path):
    for name in ("mine.parquet", "mine.csv"):
        (tmp_path / name).write_text("notes of mine")
        with pytest.raises(
            UsageError, match="is not a file of rows that matches its evidence card, so probekit does not replace it"
        ):
            write_rows(rows, tmp_path / name, CARD)
        with pytest.raises(UsageError, match="is not a file of rows"):
            check_out(tmp_path / name)
        assert (tmp_path / name).read_text() == "notes of mine"


@pytest.mark.parametrize("analysis", ["structural", "pairs", "choices"])
def test_tested_suites_of_all_models_are_one_family(analysis):
    tested = [record(analysis=analysis, layer=k, model=m, p_adjusted=0.04) for m in "ab" for k in range(3)]
    assert families(make_rows(tested)) == 1
    assert families(make_rows([record(analysis=analysis)])) == 0


def test_no_rows_at_all_are_told():
    for given in ([], ()):
        with pytest.raises(UsageError, match="no rows in an empty list"):
            as_rows(given)


def test_examples_that_are_gone_are_no_others(tmp_path):
    (tmp_path / "a").write_text("a")
    told = [digest_of_content(tmp_path / "a"), "of a file that is gone"]
    assert told_by({"examples": told}, [tmp_path / "a"]) == [tmp_path / "a"]
    with pytest.raises(DataError, match="describes other examples"):
        told_by({"examples": ["of a file that is gone"]}, [tmp_path / "a"])


def test_a_result_is_a_small_table_whose_values_stand_beside_their_layers():
    numbers = {"value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "p_adjusted": 0.01, "analysis": "similarity"}
    pairs = [
        record(metric="cka", layer=a, layer_b=b, site_b="resid_post", model_b="tiny", step_b=100, **numbers)
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    noise = [record(metric="cka", layer=0, layer_b=0, target="permuted", draw=0, **numbers)]
    result = Result(make_rows([*pairs, *noise]))
    table = result.table()
    assert [*table][:5] == ["layer", "value", "ci_low", "ci_high", "p_adjusted"]
    assert [*table][5:] == ["metric", "layer_b", "model", "model_b", "task"]
    assert table[["layer", "layer_b"]].to_numpy().tolist() == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]
    assert set(table["model_b"]) == {"tiny, step 100"}

    curve = [record(layer=n, value=v, analysis="probe") for n, v in ((0, 0.2), (1, 0.9), (2, 0.5))]
    curve += [record(layer=n, value=0.7, metric="above-permuted(accuracy)", analysis="probe") for n in (0, 1, 2)]
    curve += [record(layer=None, value=0.1, representation="length", analysis="probe")]
    result = Result(make_rows(curve))
    both = Result(result.rows.assign(joint_low=[0.0, 0.6, 0.0, *[None] * 4], joint_high=1.0, ci_low=0.8)).best()
    assert both[["layer", "value", "joint_low", "joint_high"]].to_numpy().tolist() == [["1", 0.9, 0.6, 1.0]]
    best, table = result.best(), result.table()
    assert best[["layer", "value", "metric"]].to_numpy().tolist() == [["1", 0.9, "accuracy"]]
    assert table[["layer", "value", "representation"]].to_numpy().tolist()[-1] == ["", 0.1, "length"]
    assert len(table) == 4


@pytest.mark.parametrize("name", ["table2", "table4", "table4-sick-r", "table5", "table6"])
def test_a_table_tells_its_rows_apart(name):
    """By head, variant, regime or training task where the model's name does not."""
    study = name.removesuffix("-sick-r")
    table = read(STUDIES / f"{study}-small" / f"table-{name}.parquet").table()
    told = table.columns.drop(["value", "ci_low", "ci_high", "p"], errors="ignore")
    assert not table.duplicated(list(told)).any()
    assert {"variant", "regime", "head", "trained_on"} & {*told}


def test_best_layers_are_told_apart_also_by_what_no_name_says():
    runs = [{"checkpoint": "a", "head": head, "regime": "fine-tune", "step": 9} for head in ("linear", "esim")]
    runs += [{"model": f"{folder}/bert-base-uncased", "checkpoint": ""} for folder in ("mine", "yours")]
    best = Result(make_rows([record(layer=n, value=n / 9, **run) for run in runs for n in (0, 1)])).best()
    assert best["head"].tolist() == ["linear", "esim", "", ""]
    names = ["mine/bert-base-uncased", "yours/bert-base-uncased"]
    assert best["model"].tolist() == ["tiny, fine-tuned, run a, step 9"] * 2 + names


def test_rows_without_a_table_say_how_many_are_shown():
    records = [record(layer=n, analysis="train", value=n / 40) for n in range(30)]
    result = Result(make_rows(records), notes=("2 texts are < empty.",))
    html = result._repr_html_()
    assert "<p>Note: 2 texts are &lt; empty.</p>" in html
    assert "10 of 30 values" in html
    assert html.count("<tr>") == 11
    assert result.to_markdown().count("\n") == 32
    assert r"\toprule" in result.to_latex()
