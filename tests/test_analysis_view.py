"""Tables as values: which number of which row stands in which cell."""

from importlib.metadata import EntryPoint

import pytest

from probekit import analysis, plugins
from probekit.analyses.shift import VIEW as SHIFT
from probekit.rows import make_rows
from probekit.tasks.datasets import published
from probekit.view import Cells, View


def rows(**more):
    """Two layers, their noise in two draws, and a baseline without a layer."""
    head = {"analysis": "mine", "task": "cola", "split": "dev", "model": "m", "metric": "accuracy", "n": 10}
    head |= {"representation": "mean", "estimator": "logistic", **more}
    layers = [
        {"layer_name": str(layer), "target": "gold", "value": value, "ci_low": low, "ci_high": value + 0.1}
        for layer, value, low in ((0, 0.5, 0.4), (1, 0.75, float("nan")))
    ]
    noise = [
        {"layer_name": str(layer), "target": "shuffled", "draw": draw, "value": 0.1 + 0.2 * layer + 0.05 * draw}
        for layer in (0, 1)
        for draw in (0, 1)
    ]
    return make_rows([head | row for row in [*layers, *noise, {"layer_name": "", "target": "gold", "value": 0.9}]])


def shown(*cells, **more):
    [(grid, notes)] = View(lambda rows, options: cells, **more)(rows(), {})
    assert notes == []
    return [column.name for column in grid.columns], [list(row) for row in grid.rows], set(grid.bold)


def test_each_cell_has_the_number_of_its_line():
    names, lines, bold = shown(
        Cells("value", "accuracy", best=True),
        Cells("ends", "accuracy", "interval", ".1f"),
        Cells("noise", "accuracy", target="shuffled", over="mean"),
        Cells("most", "accuracy", target="shuffled", over="max"),
        Cells("between", "accuracy", target="shuffled", over="range", form=".2f"),
        Cells("in words", "accuracy", form=lambda row: f"{row['value']:.0%} of {row['n']}"),
    )
    assert names == ["layer", "value", "ends", "noise", "most", "between", "in words"]
    assert lines == [
        ["0", "0.500", "0.4 – 0.6", "0.125", "0.150", "0.10 – 0.15", "50% of 10"],
        ["1", "0.750", "", "0.325", "0.350", "0.30 – 0.35", "75% of 10"],
    ]
    assert bold == {(1, 1)}


def test_a_column_without_numbers_stays_if_it_is_the_value():
    assert shown(Cells("f1", "f1"), Cells("ends", "f1", "interval"), Cells("p", "accuracy", "no_such"))[0] == [
        "layer",
        "f1",
    ]


def test_a_tab_in_a_name_moves_no_cell():
    of_shift = rows(analysis="shift", task="a\tb", trained_on="c\td", metric="auroc")
    [(grid, _)] = SHIFT(of_shift, {"level": 0.95, "rate": 0.01})
    assert tuple(grid.rows[0][:3]) == ("0", "c d", "a b")


@pytest.fixture
def entries(monkeypatch):
    """Entry points of strangers, beside ours."""

    def more(**values):
        ours = list(plugins.entry_points(group=analysis.GROUP))
        theirs = [EntryPoint(name, value, analysis.GROUP) for name, value in values.items()]
        monkeypatch.setattr(plugins, "entry_points", lambda group: [*ours, *theirs])
        for found in caches:
            found.cache_clear()

    caches = (plugins.named, plugins.added, analysis.analyses)
    yield more
    for found in caches:
        found.cache_clear()


def test_strangers_take_no_name_of_ours_and_break_nothing(entries, caplog):
    ours = [*analysis.analyses()]
    entries(mdl="elsewhere.mdl", broken="no_such_package.broken", train="elsewhere.train", odd="json")
    assert "train" not in analysis.modules()
    assert analysis.modules()["mdl"] == "probekit.analyses.mdl"
    assert [*analysis.analyses()] == ours
    assert "mdl of elsewhere.mdl is left out: probekit has this name" in caplog.text
    assert "train of elsewhere.train is left out: probekit has this name" in caplog.text
    assert "probekit.analyses: odd of json is left out" in caplog.text
    assert "probekit.analyses: broken of no_such_package.broken is left out" in caplog.text


def test_a_clone_that_was_pulled_but_not_installed_again_has_its_new_analyses(monkeypatch):
    ours = dict(plugins.named(analysis.GROUP))
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    assert plugins.named.__wrapped__(analysis.GROUP) == ours


def test_an_analysis_is_an_analysis_with_the_name_of_its_entry(entries, caplog, tmp_path, monkeypatch):
    (tmp_path / "strange_values.py").write_text("class ANALYSIS: name = 'other'")
    monkeypatch.syspath_prepend(tmp_path)
    former = "from probekit.analysis import Analysis\nANALYSIS = Analysis(name='his', help='', title='', plot='a:b')"
    (tmp_path / "strange_plot.py").write_text(former)
    entries(mine="strange_values", his="strange_plot")
    assert not {"mine", "his"} & {*analysis.analyses()}
    assert "his of strange_plot is left out: Analysis has no plot any more" in caplog.text
    assert "or figure=KIND." in caplog.text
    assert "mine of strange_values is left out: it is type, expected Analysis" in caplog.text


def test_data_sets_of_strangers_take_no_name_of_ours(tmp_path, monkeypatch, caplog):
    (tmp_path / "strange_data").mkdir()
    (tmp_path / "strange_data/listed.txt").write_text("Co-LA\nmine\n")
    (tmp_path / "strange_failing.py").write_text("raise RuntimeError('boom')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(published, "named", lambda group: {"a": "strange_data", "b": "strange_failing.tasks"})
    published._folders.cache_clear()
    try:
        folders = dict(published._folders())
    finally:
        published._folders.cache_clear()
    assert folders["cola"] == published.HERE
    assert "Co-LA" not in folders
    assert folders["mine"] == tmp_path / "strange_data"
    assert "Co-LA of strange_data is left out: there is cola" in caplog.text
    assert "strange_failing.tasks is left out" in caplog.text
