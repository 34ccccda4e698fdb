"""Token vectors of a few examples at a time: what ActivationCache.tokens gives, however the cache was stored."""

import numpy as np
import pytest
from toys import toy_pairs, toy_tags, toy_task

from probekit.activations import ActivationCache, cache_activations
from probekit.activations.tokens import TokenReader
from probekit.errors import UsageError

STORES = {
    "float32": {},
    "float16": {"store": "float16"},
    "bfloat16": {"store": "bfloat16"},
    "compressed": {"compress": True},
    "compressed-bfloat16": {"compress": True, "store": "bfloat16"},
}


@pytest.fixture(scope="module")
def make(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")

    def build(name, task, **options):
        path = folder / f"{name}.h5"
        if not path.exists():
            cache_activations(tiny_bert, task, out=path, **{"tokens": True} | options).close()
        return ActivationCache(path)

    return build


@pytest.mark.parametrize(
    "store", [pytest.param(s, marks=[pytest.mark.slow] if s.endswith("float16") else []) for s in STORES]
)
def test_any_examples_in_any_order(store, make):
    with make(store, toy_task(), **STORES[store]) as cache:
        reader = TokenReader(cache)
        assert reader.layers == cache.layers
        chosen = np.array([7, 0, 59, 7, 12])
        found = reader.gather(reader.start[chosen], reader.length[chosen])
        assert found.dtype == (np.float16 if store == "float16" else np.float32)
        assert found.shape == (len(cache.layers), reader.length[chosen].sum(), cache.width)
        for layer, values in zip(cache.layers, found, strict=True):
            tokens = cache.tokens(layer)
            assert np.array_equal(values, np.concatenate([tokens[i] for i in chosen]))
        assert reader.row_bytes == len(cache.layers) * cache.width * (4 if store in ("float32", "compressed") else 2)


def test_some_layers(make):
    with make("float32", toy_task()) as cache:
        reader = TokenReader(cache, [-1, "0"])
        assert reader.layers == ("3", "0")
        found = reader.gather(reader.start[:2], reader.length[:2])
        for name, values in zip(("3", "0"), found, strict=True):
            assert np.array_equal(values, np.concatenate([cache.tokens(name)[i] for i in (0, 1)]))
        with pytest.raises(UsageError, match="has no layer '9'"):
            TokenReader(cache, ["9"])


def test_special_pieces(make, tiny_bert):
    from probekit.models import load_encoder

    tokens = load_encoder(tiny_bert).tokenize([e.text for e in toy_task().split("train")])
    first = np.cumsum(tokens.length) - tokens.length
    with make("float32", toy_task()) as cache:
        reader = TokenReader(cache)
        for i in (0, 2, 31):  # the second is empty: [CLS] and [SEP] alone
            rows = slice(reader.start[i], reader.start[i] + reader.length[i])
            assert reader.special[rows].tolist() == tokens.special[first[i] : first[i] + tokens.length[i]].tolist()
    with make("words", toy_tags(), tokens=True, token_level="word-first") as cache:
        reader = TokenReader(cache)
        assert not reader.special.any()
        assert len(reader.special) == reader.start.max() + reader.length[reader.start.argmax()]


def test_pairs_read_apart(make):
    with make("pairs", toy_pairs(), pairs="separate") as cache:
        reader = TokenReader(cache)
        assert reader.start.shape == (40, 2)
        found = reader.gather(reader.start[:3, 1], reader.length[:3, 1])
        right = [cache.tokens("2")[40 + i] for i in range(3)]
        assert np.array_equal(found[2], np.concatenate(right))


def test_nothing(make):
    with make("float32", toy_task()) as cache:
        none = np.zeros(0, np.int64)
        assert TokenReader(cache).gather(none, none).shape == (4, 0, 32)
    with make("pooled", toy_task(), tokens=False) as cache, pytest.raises(UsageError, match="has no token vectors"):
        TokenReader(cache)


def test_nothing_of_the_file_is_held_but_what_is_asked_for(make):
    with make("float32", toy_task()) as cache:
        assert not any(hasattr(source, "__array__") for source in TokenReader(cache)._sources)


def test_a_list_of_paths_is_not_a_path():
    with pytest.raises(
        UsageError, match="found the list .* where the path of one activation cache is expected; give each cache"
    ):
        ActivationCache(["a.h5"])
