"""Surprisal: minicons' numbers (recorded), the stock model in each window, and rows that join by id."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import probekit
from probekit.errors import UsageError
from probekit.models.identity import identify
from probekit.models.scoring import load_scorer
from probekit.models.scoring.reading import Window, cut_texts, read, windows

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "surprisal.json").read_text())
DOCUMENT = [{"id": f"s{i}", "document": "d", "text": text} for i, text in enumerate(GOLDEN["texts"])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny GPT-2 and BERT, and a file of texts of one document."""
    path = tmp_path_factory.mktemp("surprisal")
    for kind in ("gpt2", "bert"):
        tiny.tiny_language_model(kind, path / kind, causal=kind == "gpt2")
    (path / "texts.jsonl").write_text("\n".join(map(json.dumps, DOCUMENT)))
    return path


def surprisal(folder: Path, kind: str, **options: object):
    return probekit.surprisal(folder / kind, folder / "texts.jsonl", **options)


@pytest.mark.parametrize(
    ("kind", "golden", "level", "options"),
    [
        ("gpt2", "space before", "word", {}),
        ("gpt2", "space after", "word", {"space_after": True}),
        ("bert", "pll", "piece", {"score": "pll", "pieces": True}),
        ("bert", "pll-word", "piece", {"pieces": True}),
    ],
)
def test_minicons_finds_the_same(folder: Path, kind: str, golden: str, level: str, options: dict[str, object]) -> None:
    if identify(folder / kind)["weights_digest"] != GOLDEN["weights"][kind]:
        pytest.skip("this torch draws other weights than those that the numbers were recorded with")
    rows = surprisal(folder, kind, **options).rows
    np.testing.assert_allclose(rows.loc[rows["level"] == level, "value"], GOLDEN[golden], rtol=1e-6, atol=1e-5)


@torch.no_grad()
def test_a_document_is_read_in_windows(folder: Path) -> None:
    """Each piece in the first window with it, after the texts before its own; values as those of the stock model."""
    result = surprisal(
        folder, "gpt2", context="document", prefix="it was", unit="nats", pieces=True, window=9, stride=4
    )
    rows = result.rows[result.rows["level"] == "piece"]
    tokenizer = AutoTokenizer.from_pretrained(folder / "gpt2")
    model = AutoModelForCausalLM.from_pretrained(folder / "gpt2").eval()
    before, *ids = (tokenizer(text)["input_ids"] for text in ("it was", " ".join(["it was", *GOLDEN["texts"]])))
    right, (ids,) = [], ids
    for t in range(len(ids)):
        end = next(end for end in range(9, len(ids) + 5, 4) if end > t)
        end = min(end, len(ids))
        given = [*([tokenizer.bos_token_id] if end == 9 else []), *ids[end - 9 : t]]
        right.append(-float(model(torch.tensor([given])).logits[0, -1].log_softmax(-1)[ids[t]]))
    np.testing.assert_allclose(rows["value"], right[len(before) :], atol=1e-4)
    words = result.rows[result.rows["level"] == "word"]
    np.testing.assert_allclose(words["value"].sum(), rows["value"].sum())
    assert (words["pieces"].sum(), set(words["metric"])) == (len(rows), {"surprisal-nats"})


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_text_in_one_window_is_read_as_other_scores_read_it(folder: Path, kind: str) -> None:
    scorer = load_scorer(folder / kind, device="cpu")
    how = {"causal": scorer.causal}
    bos = scorer.tokenizer.bos_token_id if scorer.causal else None
    texts = [*GOLDEN["texts"], "unhappy", ""]
    whole = read(scorer.tokenizer, texts, scorer.max_length, start=True, since=None, **how)
    for text, one in zip(cut_texts(scorer.tokenizer, texts, **how), whole, strict=True):
        found = [reading for reading, _ in windows(text, Window(), scorer.max_length, bos=bos, **how)]
        assert found == ([] if one.problem else [one])


def test_rows_join_by_id_and_number(folder: Path) -> None:
    rows = surprisal(folder, "gpt2", no_start=True).rows
    texts = {one["id"]: one["text"] for one in DOCUMENT}
    assert [*rows["text"]] == [word for text in texts.values() for word in text.split()]
    for row in rows.itertuples():
        assert (
            texts[row.example][row.char_start : row.char_end] == row.text == texts[row.example].split()[row.word_index]
        )
    assert rows["value"].isna().tolist() == (rows["word_index"] == 0).tolist()  # no prediction without a beginning


def test_what_does_not_fit_is_said(folder: Path) -> None:
    (folder / "plain.txt").write_text("the cat sleeps\n")
    for options, message in (
        ({"window": 100}, "the window has 100 pieces; .* reads 2 to 40 at once"),
        ({"window": 8, "stride": 8}, "moved on by 8 pieces, but has 8"),
        ({"score": "log-probability"}, "pll-word"),
    ):
        with pytest.raises(UsageError, match=message):
            surprisal(folder, "gpt2", **options)
    with pytest.raises(UsageError, match="no pieces that begin with a space"):
        surprisal(folder, "bert", space_after=True)
    with pytest.raises(UsageError, match="the texts have no documents"):
        probekit.surprisal(folder / "gpt2", folder / "plain.txt", context="document")
