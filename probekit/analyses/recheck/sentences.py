"""The answer of a recheck as a sentence, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isnan
from typing import TYPE_CHECKING, Any

from probekit.analyses.cards import ABOVE, FOUND
from probekit.analyses.recheck import with_texts
from probekit.analyses.recheck.decision import Answer, Finding
from probekit.metrics import derive
from probekit.statistics.predictions import Predictions
from probekit.view import bracketed

if TYPE_CHECKING:
    import pandas as pd

AT = (ABOVE, FOUND)
MANY = 100
"""How many times as many examples nobody will label."""


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The answer with the differences behind it; what changed; why it is not paired; how far errors move scores."""
    rows = with_texts(rows)
    first, known = rows.iloc[0].to_dict(), {row["metric"]: row for row in reversed(rows.to_dict("records"))}
    differences: list[Any] = rows[rows["finding"] != ""].to_dict("records")
    yield f"{_answer(first, differences)}; {_at_threshold(known)}{first['n']:,} examples{_untested(first)}"
    if first["answer"] == Answer.STALE and (new := known.get("kept-threshold")) is not None:
        yield _new(new)
    if first["changed"]:
        yield f"what changed: {first['changed']}"
    if first["unpaired"]:
        mix = f"; the card's mix of classes may be another than {first['mix']}" if first.get("mix") else ""
        yield f"compared with the probe's card, not example by example: {first['unpaired']}{mix}"
    if (shift := known.get("score-shift")) is not None:
        yield _scores(shift, known)
    errors = rows[(rows["metric"] == "extraction-error") & (rows["movement"] > 0)]
    if len(errors):
        at: Any = errors["movement"].idxmax()
        worst = errors.loc[at]
        share = f"{worst['movement_share']:.1g} of their standard deviation"
        yield f"extraction ({worst['check']}) moves scores by at most about {worst['movement']:.1g}, {share}"


def _untested(first: Mapping[Any, Any]) -> str:
    """The classes that no example has."""
    return f", and none of {names}: not tested" if (names := first.get("untested")) else ""


def _answer(first: Mapping[Any, Any], differences: Sequence[Mapping[str, Any]]) -> str:
    """The answer, and the differences of metrics that it rests on."""
    said, shown = first["answer"], [d for d in differences if d["needed"] and not _at(d)]
    if said == Answer.DEGRADED:
        shown = [d for d in differences if d["finding"] == Finding.MOVED and not _at(d)]
    told = ", ".join(_difference(d) for d in shown if d["before"] == d["before"] and d["after"] == d["after"])
    if said != Answer.INCONCLUSIVE:
        return f"{said}: {told}"
    open_ = [d for d in differences if d["needed"] and d["finding"] == Finding.OPEN]
    names = ", ".join(_plain(d["metric"]) for d in open_)
    moved = any(d["finding"] == Finding.MOVED for d in differences)
    beside = "the threshold does not hold, and whether the ranking does is open" if moved else f"open: {names}"
    return f"{said}: {beside}; {_needs(first, open_)}{told and '; '}{told}"


def _needs(first: Mapping[Any, Any], open_: Sequence[Mapping[str, Any]]) -> str:
    """About how many more examples would decide, or why nobody can say."""
    if lacking := [f"{_plain(d['metric'])}: {d['why']}" for d in open_ if d["why"]]:
        return "; ".join(lacking)
    if first["more"] == inf and first["unpaired"]:
        return "the card's own interval is so wide that no number of new examples would probably decide; give --before"
    if first["more"] > MANY * first["n"]:
        return f"needs more than {MANY} times as many examples"
    return f"needs about {first['more']:,.0f} more examples"


def _at(row: Mapping[str, Any]) -> bool:
    return row["metric"] in AT or row["metric"] in [derive("difference", name) for name in AT]


def _plain(name: str) -> str:
    name = name.removeprefix("difference(").removesuffix(")")
    return {ABOVE: "false positives at the threshold", FOUND: "recall at the threshold"}.get(name, name)


def _difference(row: Mapping[str, Any]) -> str:
    """matthews 0.420 → 0.410, difference -0.010 [-0.020, 0.000] (margin 0.02)."""
    both = f"{_plain(row['metric'])} {row['before']:.3f} → {row['after']:.3f}"
    return f"{both}, difference {bracketed(row, '.3f')} (margin {row['margin']:g})"


def _at_threshold(known: Mapping[str, Any]) -> str:
    """The rate of false positives and the recall at the card's threshold, now."""
    if (rate := known.get(ABOVE)) is None:
        return "the card has no threshold to check; " if derive("difference", "auroc") in known else ""
    before, found = known.get(derive("difference", ABOVE)), known[derive("difference", FOUND)]
    recall = "" if isnan(found["after"]) else f"recall {found['before']:.3f} → {found['after']:.3f}; "
    if isnan(rate["after"]):
        return recall and f"at the threshold for {100 * rate['before']:g} % {recall}"
    share = {"value": rate["after"], **{end: rate[end] + rate["before"] for end in ("ci_low", "ci_high")}}
    said = f"the threshold for {100 * rate['before']:g} % flags {bracketed(share, '.1f', scale=100)} % of negatives"
    then = f" ({100 * before['before']:.1f} % before)" if before is not None else ""
    return f"{said}{then}{', ' if recall else '; '}{recall}"


def _scores(shift: Mapping[Any, Any], known: Mapping[str, Any]) -> str:
    """How the scores moved."""
    scale, alike = known["score-scale"]["value"], known["score-correlation"]["value"]
    said = f"scores moved by {bracketed(shift, '.3f')}, scale {scale:.3f}, correlation {alike:.3f}"
    decisions = known.get("changed-decisions")
    return said + ("" if decisions is None else f"; {100 * decisions['value']:.1f} % of the decisions changed")


def _new(row: Mapping[str, Any]) -> str:
    """The new threshold, with what it flags and finds."""
    if row["value"] != row["value"]:
        return f"no new threshold: {row['why']}"
    ends = {"value": row["rate"], "ci_low": row["rate_low"], "ci_high": row["rate_high"]}
    recall = bracketed(row, ".3f", ("recall", "recall_low", "recall_high"))
    flagged = bracketed(ends, ".1f", scale=100)
    return f"a new threshold, {row['value']:.4g}, flags {flagged} % of negatives, recall {recall}"
