"""Words around a sentence in its document: from -DOCSTART- lines to what is read, stored and learned from."""

import numpy as np
import pytest

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.text import TextData
from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.train import train
from probekit.cli import main
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.loading import text_reader
from probekit.tasks import load_task
from probekit.tasks.context import MOST, in_context
from probekit.tasks.task import Example, Split, Task, TaskKind

START = "-DOCSTART- -X- O O"
SENTENCES = ("EU rejects call .", "the cat", "a good dog and a bad dog", "it was", "not good", "the movie")


def conll(folder, documents=((0, 1, 2), (3, 4), (5,))):
    """CoNLL-2003's files: three documents in each split; the first word of each sentence is an organisation."""
    folder.mkdir(exist_ok=True)
    lines = []
    for document in documents:
        lines += [START, ""]
        for i in document:
            words = SENTENCES[i].split()
            lines += [*(f"{w} NN I-NP {'O' if k else 'I-ORG'}" for k, w in enumerate(words)), ""]
    for name in ("train", "testa", "testb"):
        (folder / f"eng.{name}").write_text("\n".join(lines) + "\n")
    return folder


def test_documents_are_kept_and_words_around_come_from_them_alone(tmp_path):
    task = load_task("conll2003", conll(tmp_path))
    split = task.split("dev")
    assert [e.group for e in split] == ["eng.testa 1"] * 3 + ["eng.testa 2"] * 2 + ["eng.testa 3"]
    assert [" ".join(e.words) for e in split] == list(SENTENCES)
    around = in_context(task, "document").split("dev")
    assert around[1].before == tuple(SENTENCES[0].split())
    assert around[1].after == tuple(SENTENCES[2].split())
    assert (around[3].before, around[3].after) == ((), ("not", "good"))
    assert (around[5].before, around[5].after) == ((), ())
    assert [e.words for e in around] == [e.words for e in split]
    assert around.digest() != split.digest()
    assert in_context(task, "none") is task
    long = [Example(str(i), "x", (0,), words=("x",), group="d") for i in range(2000)]
    many = Task("t", TaskKind.SEQUENCE_LABELLING, {"dev": Split("dev", tuple(long))}, ("O",))
    middle = in_context(many, "document").split("dev")[1000]
    assert len(middle.before) == len(middle.after) == MOST


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_sentence_is_read_in_the_middle_of_what_there_is_room_for(family, tiny_model):
    encoder = load_encoder(tiny_model(family), device="cpu", max_length=12)
    own = ("the", "cat")
    alone, whole, left, right = encoder.tokenize([(own,)]), *(
        encoder.tokenize([(before, own, after)])
        for before, after in ((("it",) * 9, ("not",) * 9), (("it",) * 9, ()), ((), ("not",) * 9))
    )  # fmt: skip
    pieces = alone.token_ids[alone.word_index >= 0]
    within = encoder.tokenize([(("it", *own),)])  # as it is read behind a blank, where the tokenizer reads blanks
    for tokens in (whole, left, right):
        mine = tokens.word_index >= 0
        wanted = pieces if tokens is right else within.token_ids[within.word_index >= 1]
        assert tokens.token_ids[mine].tolist() == wanted.tolist()
        places = alone.word_index[alone.word_index >= 0] if tokens is right else within.word_index - 1
        assert tokens.word_index[mine].tolist() == places[places >= 0].tolist()
        assert tokens.special.tolist() == (~mine).tolist()
        assert not tokens.truncated.any()
        assert 8 <= len(mine) <= 12  # whole words, of several pieces in RoBERTa's
        assert len(mine) == 12 or family != "bert"
    places = [np.flatnonzero(tokens.word_index >= 0) for tokens in (whole, left, right)]
    if family == "bert":
        assert [place.tolist() for place in places] == [[5, 6], [9, 10], [1, 2]]
    assert places[2][0] == 1
    cut = encoder.tokenize([(("it",) * 3, ("the",) * 40, ("not",) * 3)])
    assert cut.truncated.all()
    assert not cut.special[1:-1].any()


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_a_document_with_room_is_read_once_for_all_its_sentences(family, tiny_model, tmp_path):
    """Peters, Ruder & Smith (2019, appendix A) add document context around a sentence: one pass gives all vectors."""
    encoder = load_encoder(tiny_model(family), device="cpu")
    split = in_context(load_task("conll2003", conll(tmp_path / "data")), "document").split("dev")
    whole = encoder.tokenize([(tuple(w for e in split[3:5] for w in e.words),)])
    states = encoder.own_hidden_states(Batch(whole.token_ids, whole.type_ids, whole.length))
    done = 0
    for e in split[3:5]:
        tokens = encoder.tokenize([(e.before, e.words, e.after)])
        hidden = encoder.own_hidden_states(Batch(tokens.token_ids, tokens.type_ids, tokens.length))
        assert tokens.token_ids.tolist() == whole.token_ids.tolist()
        for word in range(len(e.words)):  # the state of its first piece
            mine, theirs = (np.argmax(index == i) for index, i in (
                (tokens.word_index, word), (whole.word_index, done + word)))  # fmt: skip
            assert np.allclose(hidden[2][mine], states[2][theirs], atol=1e-6)
        done += len(e.words)


def test_what_is_stored_is_the_sentence_s_own(tiny_bert, tmp_path):
    data = conll(tmp_path / "data")
    words = ["cache-activations", "--model", str(tiny_bert), "--task", "conll2003", "--data-dir", str(data)]
    words += ["--split", "dev", "--device", "cpu", "--tokens", "--context", "document", "--pooling", "mean"]
    assert main([*words, "--out", str(tmp_path / "p.h5"), "--token-level", "word-pieces"]) == 0
    assert main([*words, "--out", str(tmp_path / "w.h5"), "--token-level", "word-mean"]) == 0
    assert main([*words, "--out", str(tmp_path / "x.h5")]) == 2
    task = load_task("conll2003", data)
    encoder = load_encoder(tiny_bert, device="cpu")
    with ActivationCache(tmp_path / "p.h5") as cache, ActivationCache(tmp_path / "w.h5") as means:
        assert cache.spec["context"] == "document"
        assert cache.spec["spec_id"] != means.spec["spec_id"]
        plain = cache_activations(tiny_bert, task, "dev", out=tmp_path / "o.h5", device="cpu", tokens=True)
        for i, e in enumerate(in_context(task, "document").split("dev")):
            tokens = encoder.tokenize([(e.before, e.words, e.after)])
            mine = tokens.word_index >= 0
            hidden = encoder.own_hidden_states(Batch(tokens.token_ids, tokens.type_ids, tokens.length))[2].numpy()
            rows = cache.tokens(2)[i]
            assert len(rows) == mine.sum()
            assert np.allclose(rows, hidden[mine], atol=1e-5)
            assert np.allclose(cache.layer(2)[i], rows.mean(0), atol=1e-5)  # pooled over its own pieces
            first = np.searchsorted(tokens.word_index[mine], np.arange(len(e.words)))
            per_word = np.split(rows, first[1:])
            assert np.allclose(means.tokens(2)[i], np.stack([part.mean(0) for part in per_word]), atol=1e-5)
            same = np.allclose(rows, plain.tokens(2)[i][1:-1], atol=1e-6)
            assert same == (i == 5)  # the last is alone in its document
        assert np.array_equal(cache.word_labels, plain.word_labels)
        assert cache.layer_words(2).shape == means.layer_words(2).shape
        plain.close()


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["fine-tune", "feature-extraction"])
def test_it_is_learned_from_and_evaluated_in_context(regime, tiny_bert, tmp_path):
    task = load_task("conll2003", conll(tmp_path / "data"))
    where = {"caches": tmp_path / "caches", "head": "bilstm"} if regime == "feature-extraction" else {"head": "softmax"}
    options = {"epochs": 1, "batch_size": 4, "device": "cpu", "regime": regime, **where}
    run = train(task, tiny_bert, tmp_path / "run", context="document", test="test", **options)
    assert run.card["encoder"]["context"] == "document"
    again = evaluate(run, task=task, split="test", device="cpu", model=str(tiny_bert), caches=tmp_path / "caches")
    value = again.rows.set_index("metric")["value"]
    assert value.loc["token-accuracy"].iloc[0] == run.test["token-accuracy"]
    alone = train(task, tiny_bert, tmp_path / "alone", test="test", **options)
    assert alone.metrics["loss"] != run.metrics["loss"]
    with pytest.raises(UsageError, match="holds another run"):
        train(task, tiny_bert, tmp_path / "alone", context="document", test="test", **options)


def test_labels_are_of_the_sentence_s_own_words(tiny_bert, tmp_path):
    from transformers import AutoConfig

    task = in_context(load_task("conll2003", conll(tmp_path)), "document")
    reader = text_reader(tiny_bert, AutoConfig.from_pretrained(tiny_bert))
    data = TextData(task, task.split("dev"), reader, apart=False)
    assert data.unread == 0
    for (at, labels), e in zip(data.words, task.split("dev"), strict=True):
        assert labels.tolist() == list(e.label)
        assert at[0] > len(e.before)  # [CLS] and the words before, a piece each or more


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("grammar:sentiment", "bert", "has one label per text; --context is for tasks with one label per word"),
        ("wnut17", "bert", "has no document boundaries"),
        ("conll2003", "elmo", "elmo reads one sentence at a time"),
    ],
)
def test_what_cannot_be_is_told(task, model, message, tiny_bert, tmp_path, capsys):
    from tiny_elmo import tiny_elmo

    data = conll(tmp_path / "data")
    for name in ("wnut17train.conll", "emerging.dev.conll"):
        (data / name).write_text("Ann\tB-person\nran\tO\n\n" * 3)
    name = str(tiny_bert) if model == "bert" else "elmo:{},{}".format(*tiny_elmo(tmp_path))
    where = [] if task.startswith("grammar") else ["--data-dir", str(data)]
    words = ["train", "--task", task, "--model", name, *where, "--context", "document", "--device", "cpu"]
    for more in ([], ["--regime", "feature-extraction", "--caches", str(tmp_path / "c")]):
        assert main([*words, *more, "--out", str(tmp_path / "run")]) == 2
        assert message in capsys.readouterr().err
