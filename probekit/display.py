"""How values and names are shown: in notebooks, in terminals, and in figures, tables and reports."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from html import escape

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Escapes and other control characters except tab and newline, and those that change the direction of writing."""


def shown(text: object) -> str:
    r"""A text whose control characters and invalid characters are written out.

    Labels, names and paths may come from other people's files: printed as they are, they could move the cursor, rename
    the window, or show another text than they hold. Files keep them unchanged.

    Examples
    --------
    >>> shown("good\x1b[2Jbad")
    'good\\x1b[2Jbad'
    """
    escaped = _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], str(text))
    return escaped.encode("utf-8", "backslashreplace").decode()


def p_value(value: float, digits: int = 3) -> str:
    """A p-value, rounded up so that it never appears smaller than it is; "" for NaN.

    Examples
    --------
    >>> [p_value(p) for p in (1 / 1001, 0.0012, 0.7, float("nan"))]
    ['< .001', '0.002', '0.700', '']
    """
    if value != value:
        return ""
    return "< .001" if value < 0.001 else f"{math.ceil(value * 10**digits - 1e-9) / 10**digits:.{digits}f}"


def p_equals(value: float) -> str:
    """A p-value with its sign, as it stands beside other numbers with three decimals.

    Examples
    --------
    >>> p_equals(0.0123), p_equals(0.0002)
    ('p = 0.013', 'p < .001')
    """
    text = p_value(value)
    return f"p {text}" if text[:1] == "<" else f"p = {text}"


MODELS = {
    **dict.fromkeys(("minilm", "all-MiniLM-L6-v2"), "MiniLM"), "all-MiniLM-L12-v2": "MiniLM-L12",
    "all-mpnet-base-v2": "MPNet (sentences)", "mpnet-base": "MPNet-base",
    "bert-base-uncased": "BERT-base (uncased)", "bert-base-cased": "BERT-base (cased)",
    "bert-large-uncased": "BERT-large (uncased)", "bert-large-cased": "BERT-large (cased)",
    "bert-base-multilingual-cased": "mBERT (cased)", "bert-base-multilingual-uncased": "mBERT (uncased)",
    "distilbert-base-uncased": "DistilBERT (uncased)", "distilbert-base-cased": "DistilBERT (cased)",
    "roberta-base": "RoBERTa-base", "roberta-large": "RoBERTa-large", "distilroberta-base": "DistilRoBERTa",
    "xlm-roberta-base": "XLM-R-base", "xlm-roberta-large": "XLM-R-large",
    "albert-base-v2": "ALBERT-base", "electra-small-discriminator": "ELECTRA-small",
    "electra-base-discriminator": "ELECTRA-base", "electra-large-discriminator": "ELECTRA-large",
    "deberta-v3-small": "DeBERTa-v3-small", "deberta-v3-base": "DeBERTa-v3-base",
    "deberta-v3-large": "DeBERTa-v3-large", "xlnet-base-cased": "XLNet-base", "gpt2": "GPT-2",
    "gpt2-medium": "GPT-2 medium", "gpt2-large": "GPT-2 large", "gpt2-xl": "GPT-2 XL", "distilgpt2": "DistilGPT-2",
    "t5-small": "T5-small", "t5-base": "T5-base", "t5-large": "T5-large",
}  # fmt: skip
"""The names that figures and reports use for public models; keys are the last part of the name on the hub."""


def shown_model(name: str) -> str:
    """The name of a model in figures, tables, reports and verdicts: short for public ones, else the last part.

    Rows keep the name as it is.

    Examples
    --------
    >>> [shown_model(name) for name in ("sentence-transformers/all-MiniLM-L6-v2", "bert-base-uncased", "runs/mine")]
    ['MiniLM', 'BERT-base (uncased)', 'mine']
    """
    last = name.rstrip("/").rpartition("/")[2]
    return MODELS.get(last, last)


def shown_label(label: str) -> str:
    """A label such as "bert-base-uncased, random-0" in words, with the short names of public models.

    Examples
    --------
    >>> shown_label("bert-base-uncased, random-0, mean"), shown_label("runs/mine, step 100")
    ('BERT-base (uncased), random weights, mean', 'runs/mine, step 100')
    """
    parts = [MODELS.get(part.rpartition("/")[2], part) for part in label.split(", ")]
    is_run = [following.startswith("step ") for following in (*parts[1:], "")]  # random weights have no steps
    return ", ".join(part if run else shown_checkpoint(part) for part, run in zip(parts, is_run, strict=True))


def shown_checkpoint(name: str) -> str:
    """The name of a checkpoint; caches of random weights have "random-SEED"."""
    seed = name.removeprefix("random-")
    return f"random weights{'' if seed == '0' else f' {seed}'}" if seed != name and seed.isdecimal() else name


OBJECTIVES = {
    "language-model": "language model", "masked-language-model": "masked language model", "translate": "translation",
    "skip-thought": "Skip-Thought", "dissent": "DisSent", "reply": "replies", "respond": "responses",
    "next-sentence": "next sentence", "contrast": "contrast", "denoise": "denoising",
}  # fmt: skip
"""The names of objectives of pretraining in figures and tables."""
CORPORA = {
    "wikitext-2": "WikiText-2", "wikitext-103": "WikiText-103", "twitter": "Twitter",
    "multi30k-en-de": "Multi30k English-German", "multi30k-en-fr": "Multi30k English-French",
    "wmt14-en-de": "WMT14 English-German", "wmt17-en-ru": "WMT17 English-Russian",
    "en_ewt": "EWT", "ptb_sample": "PTB sample",
    "neg_cities": "cities, negated", "sp_en_trans": "translations",
    "neg_sp_en_trans": "translations, negated", "cities_cities_conj": "two cities (and)",
    "cities_cities_disj": "two cities (or)", "companies_true_false": "companies",
    "common_claim_true_false": "common claims", "counterfact_true_false": "CounterFact",
}  # fmt: skip
"""The names of corpora, and of parts of data sets: treebanks, sets of the Geometry of Truth."""


def shown_file(name: str) -> str:
    """The name of a corpus, a part of a data set or an own task in words: without the folder and the suffix of a file.

    Examples
    --------
    >>> shown_file("books/four_books.txt"), shown_file("wikitext-2"), shown_file("tasks/my-task.toml")
    ('four books', 'WikiText-2', 'my-task')
    """
    last = name.rstrip("/").rpartition("/")[2]
    return CORPORA.get(last) or re.sub(r"\.(txt|toml|csv|tsv|jsonl?|parquet)$", "", last).replace("_", " ")


def shown_score(score: str, task: str = "") -> str:
    """The name of a score in tables and figures; ``task`` is that of a probe on another task than the target.

    Examples
    --------
    >>> shown_score("probe"), shown_score("probe", "tree-depth"), shown_score("logme"), shown_score("cka with random")
    ('probe on the target', 'probe on tree-depth', 'LogME', 'CKA with random')
    """
    from probekit.metrics import metric

    name, *rest = re.split("(?=,| with )", score, maxsplit=1)
    title = f"probe on {task or 'the target'}" if name == "probe" else metric(name).title
    return "".join([title, *rest])


def facts_html(title: str, facts: Mapping[str, object], *, longest: int = 200) -> str:
    """A small HTML table with a line for each fact; long ones are cut, empty ones left out.

    Parameters
    ----------
    title
        The kind of value.
    facts
        Its properties, by name.
    longest
        Characters of a fact that are shown at most.

    Returns
    -------
    str
        HTML without scripts, styles, addresses or times.

    Examples
    --------
    >>> facts_html("Task", {"name": "a < b", "notes": ""})
    '<table><caption>Task</caption><tr><th>name</th><td>a &lt; b</td></tr></table>'
    """
    texts = {name: str(fact) for name, fact in facts.items() if str(fact)}
    cut = {name: text if len(text) <= longest else text[: longest - 1] + "…" for name, text in texts.items()}
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in cut.items())
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
