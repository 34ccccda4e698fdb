"""Rows that are made up, saved and made a page of: what the tests of the report share."""

import re

from probekit.report import report
from probekit.rows import make_rows, write_rows
from probekit.rows.card import FORMAT, environment

ANALYSES = {"mutual-information": "mi", "codelength-bits": "mdl", "mix-weight": "train"}
"""Where rows of a metric come from that are not said to come from elsewhere."""
SCRIPT = "<script>alert(1)</script>"


def evidence(words="probekit probe a.h5 b.h5"):
    """A card as a result writes it, of a command in these words."""
    made = {"format": FORMAT, "words": words, "reads": [], "seconds": {"probe": 1.0}, **environment()}
    return made | {"created": "2026-01-02T03:04:05+00:00"}


def record(layer=0, value=0.5, **change):
    base = {"task": "cola", "split": "dev", "model": "tiny", "layer": layer, "representation": "mean"}
    base |= {"estimator": "logistic", "target": "gold", "metric": "accuracy", "value": value, "n": 500, **change}
    return {"analysis": ANALYSES.get(base["metric"], "probe"), **base}


def curve(values, **change):
    """Gold values with intervals of ±0.05, and shuffled labels from 0.45 to 0.55."""
    gold = [record(i, v, ci_low=v - 0.05, ci_high=v + 0.05, **change) for i, v in enumerate(values)]
    noise = {"target": "shuffled", "ci_low": 0.45, "ci_high": 0.55}
    return [*gold, *(record(i, 0.5, **{**change, **noise}) for i in range(len(values)))]


def trained(run, how):
    """What tells a trained model: of "fine-tune linear" the regime and the head."""
    regime, _, head = how.partition(" ")
    return {"checkpoint": run, "estimator": "", "regime": regime, "head": head, "analysis": "train"}


def training(run, how, value, **change):
    about = {"layer": None, **trained(run, how), "step": 10, "epoch": 1.0, "kept": True}
    return [
        record(value=value, **about, ci_low=value - 0.02, ci_high=value + 0.02, **change),
        record(value=value - 0.1, **{**about, "kept": False, "step": 5}, **change),
        record(value=0.4, metric="log-loss", **about, **change),
    ]


def domain(a, b, value, p=0.005, **change):
    about = {"layer": None, "task": "domains", "estimator": "null-corrected", "metric": "js-divergence"}
    about["analysis"] = "domains"
    return record(value=value, domain_a=a, domain_b=b, p=p, ci_low=value, ci_high=value, **about) | change


def save(records, path, card=None):
    return write_rows(make_rows(records), path, evidence(f"probekit make {path.name}") if card is None else card)


def page(records, folder, **options):
    path = (
        records
        if isinstance(records, list) and not isinstance(records[0], dict)
        else [save(records, folder / "r.parquet")]
    )
    return report(*path, out=folder / "page.html", **options).read_text(encoding="utf-8")


def cells(html, caption):
    """The shown cells of the first table with a caption that holds these words."""
    body = next(part for part in html.split('<div class="table">') if caption in part).split("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in re.findall(r"<tr>(.*?)</tr>", body, re.S)]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def undrawn(patch):
    """Pages have a small square in place of each figure, whose drawing takes a second."""
    square = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="5" height="5"/></svg>'
    patch.setattr("probekit.report.figures.plot", lambda *_, **__: None)
    patch.setattr("probekit.report.figures.as_bytes", lambda *_: square)
