"""Figures of domains: what is drawn is what stands in the rows."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from probekit.cli import main
from probekit.errors import UsageError
from probekit.plots import divergence_by_size, domain_matrix, domain_panels, domain_terms, domain_tree
from probekit.plots.figure import details
from probekit.plots.look import Look
from probekit.plots.options import PlotOptions
from probekit.rows import make_rows, write_rows

NAMES = ["fiction", "travel", "telephone"]
VALUES = {("fiction", "travel"): 0.2, ("fiction", "telephone"): 0.3, ("travel", "telephone"): 0.1}


def record(a, b, value, metric="js-distance", target="gold", p=0.01, **own):
    return {
        "task": "domains", "split": "", "model": "", "layer": None, "representation": "terms", "estimator": "plug-in",
        "target": target, "metric": metric, "value": value, "n": 100, "domain_a": a, "domain_b": b, "p": p,
    } | own  # fmt: skip


def pairs(**own):
    return [record(a, b, value) | own for (a, b), value in VALUES.items()]


def axes():
    return Figure().subplots()


def cells(ax):
    return np.ma.filled(ax.images[0].get_array(), np.nan)


def hatched(ax):
    return {
        tuple(np.add(p.get_xy(), 0.5).astype(int).tolist())
        for p in ax.patches
        if isinstance(p, Rectangle) and p.get_hatch() and p.get_width()  # not the legend's
    }


def test_the_map_is_of_all_pairs():
    rows = [*pairs(), record("travel", "travel", 0.05, target="halves", p=None)]
    ax = axes()
    assert domain_matrix(make_rows(rows), ax=ax) is ax
    nan = np.nan
    np.testing.assert_array_equal(cells(ax), [[nan, 0.2, 0.3], [0.2, 0.05, 0.1], [0.3, 0.1, nan]])
    assert [t.get_text() for t in ax.get_xticklabels()] == NAMES
    assert [t.get_text() for t in ax.get_yticklabels()] == NAMES
    assert sorted(t.get_text() for t in ax.texts) == [".05", ".10", ".10", ".20", ".20", ".30", ".30"]
    assert hatched(ax) == set()
    corrected = make_rows([*pairs(estimator="null-corrected"), rows[-1]])
    assert np.isnan(cells(domain_matrix(corrected, ax=axes()))[1, 1])  # halves are raw


def test_a_measure_with_a_direction_fills_both_sides():
    rows = [*pairs(metric="kl"), record("travel", "fiction", 0.9, metric="kl", p=0.5), *pairs(metric="cosine")]
    ax = domain_matrix(make_rows(rows), ax=axes())
    np.testing.assert_array_equal(cells(ax)[:2, :2], [[np.nan, 0.2], [0.9, np.nan]])
    assert hatched(ax) == {(0, 1)}  # x, y
    with pytest.raises(UsageError, match="a symmetric distance, such as js-distance, not kl"):
        domain_tree(make_rows(rows), ax=axes())
    np.testing.assert_array_equal(cells(domain_matrix(make_rows(rows), metric="cosine", ax=axes()))[1, 0], 0.2)


def test_what_sampling_alone_gives_is_hatched_on_both_sides():
    rows = pairs()
    rows[2]["p"] = 0.2
    assert hatched(domain_matrix(make_rows(rows), ax=axes())) == {(2, 1), (1, 2)}
    assert hatched(domain_matrix(make_rows(rows), level=0.3, ax=axes())) == set()


def test_the_tree_joins_the_nearest_first():
    ax = domain_tree(make_rows(pairs()), ax=axes())
    heights = sorted(max(path.vertices[:, 0]) for c in ax.collections for path in c.get_paths())
    assert heights == pytest.approx([0.1, 0.25])  # average linkage: (0.2 + 0.3) / 2
    leaves = [t.get_text() for t in ax.get_yticklabels()]
    assert sorted(leaves) == sorted(NAMES)
    assert abs(leaves.index("travel") - leaves.index("telephone")) == 1


def term(name, value, mostly, **own):
    return record("fiction", "travel", value, metric="js-contribution", term=name, mostly=mostly, share=value, **own)


def test_terms_point_to_the_domain_that_has_more_of_them():
    rows = [term("she", 0.05, "fiction"), term("beach", 0.03, "travel"), term("he", 0.02, "fiction"),
            term("(all other terms)", 0.1, "travel")]  # fmt: skip
    ax = domain_terms(make_rows(rows), top=2, ax=axes())
    assert [t.get_text() for t in ax.get_yticklabels()] == ["she", "beach"]
    assert sorted(p.get_width() for p in ax.patches) == [-0.05, 0.03]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert "40 % of 0.200 bits" in ax.get_xlabel()
    assert [ax.get_title(side) for side in ("left", "right")] == ["More in fiction", "More in travel"]


def test_dollars_are_no_mathematics():
    """What stands in texts and names may hold what matplotlib would read as a formula."""
    figure = Figure()
    ax, tree, bars = figure.subplots(3)
    rows = pairs(domain_a="$\\no", domain_b="b$$")
    domain_matrix(make_rows(rows[:1]), ax=ax)
    domain_tree(make_rows(rows[:1]), ax=tree)
    domain_terms(make_rows([term("$$", 0.1, "fiction"), term("$\\foo$", 0.05, "travel")]), ax=bars)
    figure.canvas.draw()
    assert [t.get_text() for t in bars.get_yticklabels()] == ["$$", "$\\foo$"]


def sizes():
    own = {"metric": "js-divergence-by-size", "raw_low": 0.1, "raw_high": 0.4}
    return [record("fiction", "travel", 0.1, raw=0.1 + 1 / n, part=n / 100, **own) | {"n": n} for n in (100, 10, 50)]


def test_size_goes_to_the_right():
    ax = divergence_by_size(make_rows(sizes()), ax=axes())
    raw, corrected, _ = ax.lines
    assert list(raw.get_xdata()) == [10, 50, 100]
    assert list(raw.get_ydata()) == pytest.approx([0.2, 0.12, 0.11])
    assert list(corrected.get_ydata()) == [0.1] * 3
    assert ax.get_xscale() == "log"


def test_panels_of_all_that_there_is():
    rows = make_rows([*pairs(), term("she", 0.05, "fiction"), *sizes()])
    figure = domain_panels(rows)
    assert len(figure.axes) == 5  # map, tree, terms, sizes, colour bar
    titles = [ax.get_title("left") for ax in figure.axes if ax.get_title("left")]
    assert titles == ["a  Pairs of domains", "b  Average linkage", "c  More in fiction", "d  By number of documents"]
    assert len(domain_panels(make_rows(sizes())).axes) == 1
    assert len(domain_panels(make_rows(pairs(metric="vocabulary-overlap"))).axes) == 2  # no tree of likeness


def six(count=6):
    """Pairs of domains, with divergences by size."""
    names = [f"domain {i}" for i in range(count)]
    both = [(i, j) for i in range(count) for j in range(i)]
    rows = [record(names[i], names[j], 0.1 * (i + j), ci_low=0, ci_high=0.1 * (i + j) + 0.02) for i, j in both]
    return rows + [
        row | {"domain_a": names[i], "domain_b": names[j], "value": 0.01 * (i + j)} for i, j in both for row in sizes()
    ]


def test_more_pairs_than_a_panel_shows_have_one_for_each_domain_and_its_nearest():
    figure = domain_panels(make_rows(six()), width=7.1)
    of = {ax.get_title("left").split("  ")[-1]: ax for ax in figure.axes if ax.get_xscale() == "log"}
    assert list(of) == [f"domain {i}" for i in (1, 0, 2, 3, 4, 5)]
    labels = of["domain 2"].get_legend_handles_labels()[1]
    assert labels == [*(f"domain {i}" for i in (0, 1, 3, 4, 5)), "raw"]
    assert len({ax.get_ylim() for ax in of.values()}) == 1
    assert len(of["domain 2"].get_lines()) == 11
    many = domain_panels(make_rows(six(11)), width=7.1)
    ten = next(ax for ax in many.axes if ax.get_title("left") == "domain 10")
    assert ten.get_legend_handles_labels()[1] == [*(f"domain {i}" for i in range(8)), "raw"]
    words = details("domains", make_rows(six(11)), PlotOptions(), Look())
    assert "(c) By size: a panel for each domain with the 8 nearest others; solid" in words
    assert "95 % intervals are in the rows; none reaches farther from its value than 1.9. (b) Tree" in words


def test_what_cannot_be_drawn():
    with pytest.raises(UsageError, match="these rows contain no cosine, only js-distance"):
        domain_matrix(make_rows(pairs()), metric="cosine")
    with pytest.raises(UsageError, match="fiction and travel have two values"):
        domain_matrix(make_rows([*pairs(), *pairs()]), ax=axes())
    with pytest.raises(UsageError, match="finite distance"):
        domain_tree(make_rows(pairs()[:2]), ax=axes())
    with pytest.raises(UsageError, match="terms of one pair"):
        domain_terms(make_rows(pairs()))
    with pytest.raises(UsageError, match="no divergence by size"):
        divergence_by_size(make_rows(pairs()))
    plain = [{k: v for k, v in row.items() if k not in ("domain_a", "domain_b")} for row in pairs()]
    with pytest.raises(UsageError, match="lack the columns domain_a, domain_b"):
        domain_panels(make_rows(plain))


def test_the_command_draws_rows(tmp_path):
    rows = write_rows(make_rows([*pairs(), term("she", 0.05, "fiction")]), tmp_path / "rows.parquet", {})
    main(["plot", "domains", str(rows), "--out", str(tmp_path / "a.svg"), "--metric", "js-distance"])
    text = (tmp_path / "a.svg").read_text()
    assert all(word in text for word in (*NAMES, "she", "Jensen-Shannon distance"))
