"""Sentence scores against slow twins that run the stock model, and the logit lens against the model itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from probekit.errors import ModelError, TruncationError, UsageError
from probekit.models.scoring import Score, load_scorer
from probekit.models.scoring.load import is_causal

TEXTS = ["the cat sleeps .", "the dog sees a small bird in the garden !", "unhappy birds run", "it was good ."]
CLOSE = 2e-5  # float32, other batches: up to 4e-6 here


@pytest.fixture(
    scope="module", params=["gpt2", *(pytest.param(f, marks=pytest.mark.slow) for f in ("llama", "gpt_neox", "qwen3"))]
)
def causal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_language_model(request.param, tmp_path_factory.mktemp(request.param), causal=True)


@pytest.fixture(
    scope="module",
    params=[
        "bert",
        *(
            pytest.param(f, marks=pytest.mark.slow)
            for f in ("roberta", "distilbert", "albert", "deberta-v2", "electra")
        ),
    ],
)
def masked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_language_model(request.param, tmp_path_factory.mktemp(request.param), causal=False)


@torch.no_grad()
def slow_causal(folder: Path, text: str, *, start: bool, last: int = 0) -> tuple[float, int]:
    """The summed log-probability of the ``last`` pieces (0: of all that have one), and their number."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = ([tokenizer.bos_token_id] if start else []) + ids
    log_p = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    nats = [float(log_p[t, ids[t + 1]]) for t in range(len(ids) - 1)][-last:]
    return sum(nats), len(nats)


@torch.no_grad()
def slow_masked(folder: Path, text: str, *, words: bool, first: int = 0) -> float:
    """The summed log-probability of the masked pieces, from that with the number ``first``."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    read = tokenizer(text, return_special_tokens_mask=True)
    ids, word, total = read["input_ids"], read.word_ids(), 0.0
    for t, special in enumerate(read["special_tokens_mask"]):
        if not special and t > first:
            hidden = [u for u in range(t, len(ids)) if u == t or (words and word[u] == word[t])]
            given = [tokenizer.mask_token_id if u in hidden else piece for u, piece in enumerate(ids)]
            total += float(model(torch.tensor([given])).logits[0, t].log_softmax(-1)[ids[t]])
    return total


LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 10}
LONGROPE |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ODD = {
    "longrope": ("llama", SMALL | {"rope_parameters": LONGROPE, "max_position_embeddings": 40}),  # by the longest text
    "mamba": ("mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4}),
    "llama4_text": (
        "llama4_text",
        SMALL | {"head_dim": 8, "num_key_value_heads": 2, "num_local_experts": 2, "attention_chunk_size": 4},
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_causal_models_of_other_kinds(kind: str, tmp_path: Path) -> None:
    name, sizes = ODD[kind]
    tokenizer = tiny.tiny_tokenizer("gpt2")
    tokenizer.save_pretrained(tmp_path)
    ids = {f"{name}_token_id": 0 for name in ("bos", "eos", "pad")}
    config = AutoConfig.for_model(name, **sizes, **ids, vocab_size=len(tokenizer), initializer_range=0.2)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    found = load_scorer(tmp_path).score(["cat", "the old cat sees it"])
    for i, text in enumerate(["cat", "the old cat sees it"]):
        assert abs(found["log-probability"][i, 0] - slow_causal(tmp_path, text, start=True)[0]) < 1e-4


@pytest.mark.parametrize("start", [True, False])
def test_causal_scores_are_sums_of_log_probabilities(causal: Path, start: bool) -> None:
    found = load_scorer(causal, batch_tokens=24).score(TEXTS, start=start)
    for i, text in enumerate(TEXTS):
        total, count = slow_causal(causal, text, start=start)
        assert found[Score.LOG_PROBABILITY][i, 0] == pytest.approx(total, abs=CLOSE * abs(total))
        assert found[Score.MEAN][i, 0] == pytest.approx(total / count, abs=CLOSE * abs(total))


@pytest.mark.parametrize("words", [False, True])
def test_masked_scores_mask_each_piece_or_the_rest_of_its_word(masked: Path, words: bool) -> None:
    score = Score.PLL_WORD if words else Score.PLL
    found = load_scorer(masked, batch_tokens=24).score(TEXTS, [score])[score]
    for i, text in enumerate(TEXTS):
        assert found[i, 0] == pytest.approx(slow_masked(masked, text, words=words), rel=CLOSE)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_continuations_are_the_last_pieces_of_the_whole_text(tmp_path: Path, family: str) -> None:
    folder = tiny.tiny_language_model(family, tmp_path, causal=True)
    scorer = load_scorer(folder, batch_tokens=64)
    right, _ = slow_causal(folder, "see the cat", start=True, last=1)  # "Ġcat" is one piece
    found = scorer.continuations(["see the", "see the ", "see the c"], [" cat", "cat", "at"])
    assert found == pytest.approx([right] * 3, rel=CLOSE)
    assert found.dtype == np.float64
    after = scorer.continuations(["it was"] * 2, [" good", " bad"])  # letters, which do not merge
    wholes, before = scorer.continuations([""] * 2, ["it was good", "it was bad"]), scorer.score(["it was"])
    assert after + before[Score.LOG_PROBABILITY][0, 0] == pytest.approx(wholes, rel=CLOSE)
    assert wholes == pytest.approx(scorer.score(["it was good", "it was bad"])[Score.LOG_PROBABILITY][:, 0], rel=CLOSE)
    mean = scorer.continuations(["it was"] * 2, [" good", " bad"], "mean-log-probability")
    assert mean == pytest.approx(after / [5, 4], rel=CLOSE)
    given = scorer.continuations(["<|endoftext|>it was"] * 2, [" good", " bad"])  # as chat templates begin
    assert given == pytest.approx(after, rel=CLOSE)
    with pytest.raises(UsageError, match="no piece to predict"):
        scorer.continuations(["it was"], [""])
    with pytest.raises(UsageError, match="pll is not a score of causal"):
        scorer.continuations(["it was"], [" good"], "pll")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_continuations_of_masked_models_are_masked_and_their_prefix_is_not(tmp_path: Path, family: str) -> None:
    folder = tiny.tiny_language_model(family, tmp_path, causal=False)
    first = len(AutoTokenizer.from_pretrained(folder)("the cat")["input_ids"]) - 2
    for score in (Score.PLL, Score.PLL_WORD):
        right = slow_masked(folder, "the cat sleeps unhappy", words=score is Score.PLL_WORD, first=first)
        found = load_scorer(folder).continuations(["the cat"], [" sleeps unhappy"], score)
        assert found == pytest.approx([right], rel=CLOSE)


def test_words_of_several_pieces_are_what_the_correction_changes(tmp_path: Path) -> None:
    scorer = load_scorer(tiny.tiny_language_model("bert", tmp_path, causal=False))
    found = scorer.score(["the cats sleeps .", "the cat sleeps ."])
    same = found[Score.PLL][:, 0] == found[Score.PLL_WORD][:, 0]
    assert same.tolist() == [False, True]


def lens_ends_with_the_model(folder: Path) -> None:
    scorer = load_scorer(folder)
    alone, layers = scorer.score(TEXTS), scorer.score(TEXTS, layers=True)
    for score in scorer.scores:
        assert layers[score].shape == (len(TEXTS), scorer.head.depth + 1)
        np.testing.assert_allclose(layers[score][:, -1:], alone[score], rtol=CLOSE)
        assert np.ptp(layers[score], axis=1).min() > 0.1


def test_the_last_layer_of_the_logit_lens_is_the_causal_model(causal: Path) -> None:
    lens_ends_with_the_model(causal)


def test_the_last_layer_of_the_logit_lens_is_the_masked_model(masked: Path) -> None:
    lens_ends_with_the_model(masked)


@torch.no_grad()
def test_the_logit_lens_of_gpt2_is_its_norm_and_embeddings(tmp_path: Path) -> None:
    folder = tiny.tiny_language_model("gpt2", tmp_path, causal=True)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    stream = model(ids, output_hidden_states=True).hidden_states[1]
    log_p = model.lm_head(model.transformer.ln_f(stream))[0].log_softmax(-1)
    right = sum(float(log_p[t, ids[0, t + 1]]) for t in range(ids.shape[1] - 1))
    found = load_scorer(folder).score(TEXTS[:1], layers=True, start=False)[Score.LOG_PROBABILITY]
    assert found[0, 1] == pytest.approx(right, rel=CLOSE)


def test_a_model_without_a_head_is_refused(tiny_bert: Path, minilm: Path, tmp_path: Path) -> None:
    for folder in (tiny_bert, minilm):
        with pytest.raises(UsageError, match="no head of a language model"):
            load_scorer(folder)
    with pytest.raises(UsageError, match=r"^minilm has no head of .*BertModel\), so no\.$"):
        is_causal("minilm", "no")  # by the name that the user gave, not by its folder
    folder = tiny.tiny_model("bert", tmp_path)
    config = (folder / "config.json").read_text().replace('"BertModel"', '"BertForMaskedLM"')
    (folder / "config.json").write_text(config)
    with pytest.raises(ModelError, match="would be random"):
        load_scorer(folder)


def test_sentences_that_cannot_be_scored_are_named(tmp_path: Path) -> None:
    scorer = load_scorer(tiny.tiny_language_model("gpt2", tmp_path, causal=True))
    with pytest.raises(TruncationError, match="the cat the cat"):
        scorer.score(["the cat " * 60])
    with pytest.raises(UsageError, match="no piece to predict"):
        scorer.score(["a"], start=False)
    with pytest.raises(UsageError, match="pll is not a score of causal"):
        scorer.score(TEXTS, [Score.PLL])


def test_texts_fill_the_model(tmp_path: Path) -> None:
    """40 positions: a causal model never reads its last piece, a masked one reads all, with two that are added."""
    for family, most in (("gpt2", 40), ("bert", 38)):
        scorer = load_scorer(tiny.tiny_language_model(family, tmp_path / family, causal=family == "gpt2"))
        word = " a" if family == "bert" else " the"
        assert scorer.scored([word * n for n in (most, most + 1)]).tolist() == [most, 0]
        scorer.score([word * most])
        with pytest.raises(TruncationError, match="has 41 pieces, but the model reads 40"):
            scorer.score([word * (most + 1)])


def test_a_tokenizer_without_a_piece_for_the_beginning_gives_the_first_piece(tmp_path: Path) -> None:
    folder = tiny.tiny_language_model("qwen3", tmp_path, causal=True)
    file = folder / "tokenizer_config.json"
    file.write_text(file.read_text().replace('"bos_token": "<|endoftext|>"', '"bos_token": null'))
    scorer = load_scorer(folder)
    assert scorer.tokenizer.bos_token_id is None
    assert scorer.score(TEXTS[:1])[Score.LOG_PROBABILITY][0, 0] == pytest.approx(
        slow_causal(folder, TEXTS[0], start=False)[0], rel=CLOSE
    )
    assert scorer.scored(["a", "the"]).tolist() == [0, 1]  # the first has one piece


def test_a_model_that_reads_what_it_predicts_is_refused(tmp_path: Path) -> None:
    folder = tiny.tiny_language_model("bert", tmp_path, causal=False)
    config = folder / "config.json"
    config.write_text(config.read_text().replace("BertForMaskedLM", "BertLMHeadModel"))
    with pytest.raises(ModelError, match="reads the pieces that it is to predict.*is_decoder"):
        load_scorer(folder)
    config.write_text(config.read_text().replace('"is_decoder": false', '"is_decoder": true'))
    assert np.isfinite(load_scorer(folder).score(TEXTS, start=False)[Score.MEAN]).all()


def test_a_batch_reads_no_sequence_twice(tmp_path: Path) -> None:
    """Answers to one question, and sequences in which both scores mask the same pieces, are read once."""
    read: list[int] = []
    causal = load_scorer(tiny.tiny_language_model("gpt2", tmp_path / "gpt2", causal=True))
    causal.continuations(["see the"] * 2, [" the", " cat"], progress=lambda _, done, total: read.append(total))
    masked = load_scorer(tiny.tiny_language_model("bert", tmp_path / "bert", causal=False))
    masked.score(["the cats sleeps ."], progress=lambda _, done, total: read.append(total))
    assert {read[0], read[-1]} == {1, 6}  # the cat ##s sleeps . : five, and one with both pieces of a word masked


def test_random_weights_are_a_control_with_a_seed(tmp_path: Path) -> None:
    folder = tiny.tiny_language_model("gpt2", tmp_path, causal=True)
    scores = [load_scorer(folder, random_weights=seed).score(TEXTS)[Score.MEAN] for seed in (0, 0, 1)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])
