"""The kinds of table, and their options."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from probekit.constraint import Checked
from probekit.recipe import option
from probekit.rows.selection import MODELS, VARIANTS


@dataclass(frozen=True, slots=True)
class TableKind:
    """A kind of table.

    Attributes
    ----------
    study : str
        "module:function" that computes its rows from those of analyses. This package only renders.
    shown : tuple of str
        The analyses of its rows.
    draw : str
        "module:function" that renders its rows, with published numbers beside them.
    beside : tuple of str
        The published numbers that it can show, by their beginning.
    """

    study: str
    shown: tuple[str, ...]
    draw: str
    beside: tuple[str, ...] = ()


TABLES = {
    "regimes": TableKind(
        "probekit.analyses.regimes:regime_study",
        ("train", "evaluate"),
        "probekit.tables.regimes:regime_table",
        ("peters-2019/",),
    ),
    "domains": TableKind(
        "probekit.analyses.transfer:domain_study",
        ("transfer",),
        "probekit.tables.regimes:domain_table",
        ("peters-2019/",),
    ),
    "glue": TableKind(
        "probekit.analyses.encoders:encoder_scores", ("glue",), "probekit.tables.glue:glue_table", ("bowman-2018/1",)
    ),
    "task-correlations": TableKind(
        "probekit.analyses.encoders:task_correlations",
        ("task-correlations",),
        "probekit.tables.glue:correlation_table",
        ("bowman-2018/2",),
    ),
    "score-correlations": TableKind(
        "probekit.analyses.score_correlations:score_correlations",
        ("score-correlations",),
        "probekit.tables.glue:score_table",
    ),
    "mixtures": TableKind(
        "probekit.analyses.encoders:mixture_scores",
        ("mixtures",),
        "probekit.tables.glue:mixture_table",
        ("bowman-2018/4", "bowman-2018/5"),
    ),
    "diagnostic": TableKind(
        "probekit.analyses.encoders:diagnostic_scores",
        ("diagnostic",),
        "probekit.tables.glue:diagnostic_table",
        ("bowman-2018/6",),
    ),
    "expected": TableKind(
        "probekit.analyses.regimes:expected_performance",
        ("expected-performance",),
        "probekit.tables.adaptation:expected_table",
    ),
    "adaptation": TableKind(
        "probekit.analyses.guidelines.several_settings:compared_settings",
        ("guidelines",),
        "probekit.tables.adaptation:adaptation_table",
    ),
    "scoreboard": TableKind(
        "probekit.analyses.scoreboard.measure:board_rows",
        ("scoreboard",),
        "probekit.analyses.scoreboard.tables:board_table",
    ),
}
"""The kinds of table, by name."""
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(TABLES)]


@dataclass(frozen=True, slots=True)
class TableOptions(Checked):
    """Which rows a table shows, and numbers beside ours."""

    published: str | None = option(
        None, "Published numbers to show as well: peters-2019/2 to peters-2019/6, or bowman-2018/1, 2, 4, 5 or 6."
    )
    models: tuple[str, ...] = option((), MODELS, metavar="NAME")
    variants: tuple[str, ...] = option((), VARIANTS, metavar="NAME")
