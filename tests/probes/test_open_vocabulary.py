"""Each cache of ELMo numbers its words in its own way; what is compared between caches is the words."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_elmo import tiny_elmo

import probekit
from probekit.activations import cache_activations
from probekit.models import load_encoder
from probekit.models.elmo.files import convert_elmo
from probekit.probes.protocol.pieces import bag_of_pieces, keys, word_types
from probekit.tasks.task import Example, Split, Task, TaskKind

WORDS = "the a cat dog bird sees chases finds red small old and".split()


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory):
    """Sentences whose label is whether they have the word "red": of train, and of dev in another order of words."""
    folder = tmp_path_factory.mktemp("elmo")
    rng = np.random.default_rng(0)

    def split(name: str, n: int, words: list[str]) -> Split:
        found = []
        for i in range(n):
            some = tuple(words[j] for j in rng.permutation(len(words))[: rng.integers(3, 9)])
            found.append(Example(f"{name}{i}", " ".join(some), tuple(int(w == "red") for w in some), words=some))
        return Split(name, tuple(found))

    splits = {"train": split("train", 80, WORDS), "dev": split("dev", 40, WORDS[::-1])}
    tags = Task("tags", TaskKind.SEQUENCE_LABELLING, splits, ("other", "red"), ("accuracy",))
    texts = {
        name: Split(name, tuple(Example(e.id, e.text, int("red" in e.text.split())) for e in part))
        for name, part in splits.items()
    }
    sentences = Task("red", TaskKind.CLASSIFICATION, texts, ("no", "yes"), ("accuracy",))
    encoder = load_encoder(convert_elmo(*tiny_elmo(folder), folder / "model"), device="cpu")
    return [
        [cache_activations(encoder, task, s, tokens=task is tags, out=folder / f"{task.name}{s}.h5") for s in splits]
        for task in (sentences, tags)
    ], splits


def test_bags_and_keys(caches):
    [[train, dev], _], splits = caches
    x, z = bag_of_pieces(train.pieces, dev.pieces)
    words = sorted({w for e in splits["train"] for w in e.words or ()})
    assert x.shape[1] == len(words)
    for bags, split in ((x, "train"), (z, "dev")):
        by_word = np.array([[w in (e.words or ()) for w in words] for e in splits[split]])
        ours = bags.toarray() > 0
        assert sorted(map(bytes, ours.T)) == sorted(map(bytes, by_word.T))  # the same columns, in another order
    texts = [[e.text for e in splits[s]] for s in ("train", "dev")]
    found = [keys(c.pieces) for c in (train, dev)]
    same = [[a == b for b in found[1]] for a in found[0]]
    assert same == [[a == b for b in texts[1]] for a in texts[0]]


def test_word_types(caches):
    [_, [train, dev]], splits = caches
    types = np.concatenate(word_types(train.word_pieces, dev.word_pieces))
    words = np.array([w for s in ("train", "dev") for e in splits[s] for w in e.words or ()])
    assert len({*zip(types.tolist(), words.tolist(), strict=True)}) == len(set(words)) == len(set(types.tolist()))


def test_the_bag_tells_what_a_word_tells(caches):
    """The control: with the numbers of each cache as they are, the bag of dev would be of other words."""
    [[train, dev], _], _ = caches
    rows = probekit.probe(train, dev).rows
    gold = rows[(rows["target"] == "gold") & (rows["metric"] == "accuracy")]
    assert gold.loc[gold["representation"] == "bag-of-pieces", "value"].item() > 0.95
    assert not np.array_equal(train._pieces("characters")[:5], dev._pieces("characters")[:5])
