"""What is no independent evidence is found, all of it and nothing else, against a slow twin; and fast."""

import time

import numpy as np
import pytest

from probekit.statistics.duplicates import TextNumbers, find_groups, merged, near_copies, related, text_numbers

RNG = np.random.default_rng(0)
WORDS = np.array([f"w{i}" for i in range(3000)])


def sentences(n, rng=RNG, length=9):
    return [" ".join(rng.choice(WORDS, size=length)) for _ in range(n)]


def changed(text, at=0):
    """The sentence with another word in one place."""
    words = text.split()
    words[at] = f"other{RNG.integers(1 << 30)}"
    return " ".join(words)


def jaccard(a, b):
    """Of the sets of words and neighbouring pairs, in plain Python."""
    sets = [{*words, *zip(words, words[1:])} for words in (a.split(), b.split())]  # noqa: B905, RUF007
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_near_copies_are_those_of_the_slow_twin():
    texts = sentences(60)
    texts += [changed(t, i % 9) for i, t in enumerate(texts[:40])] + [changed(changed(t, 1), 7) for t in texts[:20]]
    numbers = text_numbers(texts)
    found = {tuple(sorted(edge)) for edge in near_copies(numbers).tolist()}
    alike = {(i, j) for j in range(len(texts)) for i in range(j) if jaccard(texts[i], texts[j]) >= 0.5}
    assert found <= alike  # each is verified
    assert len(alike) >= 40
    assert len(find_groups([numbers]).of) - find_groups([numbers]).count >= 36  # and hardly one is missed


def test_equal_texts_shared_sentences_and_near_copies():
    a, b = sentences(6), sentences(6)
    text = [a[0], a[1], a[2], a[0].upper() + "!", b[4], a[5], changed(a[1])]
    pair = [b[0], b[1], b[2], b[0], a[2], b[0], b[3]]
    found = find_groups([text_numbers(text), text_numbers(pair)])
    # 3 equals 0 but for case; 5 shares a sentence with 0; 6 nearly copies a sentence of 1; 4 shares none: a[2] is in 2
    assert found.of.tolist() == [0, 1, 2, 0, 2, 0, 1]
    assert (found.equal, found.shared, found.near, found.apart) == (1, 3, 2, 0)
    alone = find_groups([text_numbers(text)])
    assert alone.of.tolist() == [0, 1, 2, 0, 3, 4, 1]
    swapped = find_groups([text_numbers([a[0], b[0]]), text_numbers([b[0], a[0]])])
    assert (swapped.count, swapped.equal) == (1, 1)
    assert find_groups([text_numbers(sentences(50))]).count == 50  # the control: nothing in common
    short = ["a b", "a c", "", "!", "a b"]  # equal ones only
    assert find_groups([text_numbers(short)]).of.tolist() == [0, 1, 2, 3, 0]


SYSTEM = "<|im_start|>system\nYou are a helpful assistant. Say whether the sentence is acceptable.<|im_end|>\n"
FRAME = (f"{SYSTEM}<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")


def framed(texts, frame=FRAME):
    return [text.join(frame) for text in texts]


@pytest.mark.parametrize("frame", [FRAME, ("[INST] ", " [/INST]"), ("", " Answer:"), ("Is this true? ", "")])
def test_a_template_around_all_texts_changes_nothing(frame):
    a = sentences(60, length=6)
    a = [*a, *(changed(text) for text in a[:10]), a[0], "", "the cat", "the dog"]
    b = [*sentences(len(a) - 1, length=7), a[5]]
    domains = np.repeat(np.arange(len(a) // 2), 2)
    for parts in ([a], [a, b]):
        plain = find_groups([text_numbers(part) for part in parts], domains)
        again = find_groups([text_numbers(framed(part, frame)) for part in parts], domains)
        np.testing.assert_array_equal(again.of, plain.of)
        assert (again.equal, again.shared, again.near) == (plain.equal, plain.shared, plain.near)
        assert 20 <= plain.near <= 24
    opened = [text_numbers([frame[0] + text for text in a]), text_numbers([text + frame[1] for text in b])]
    np.testing.assert_array_equal(find_groups(opened).of, find_groups([text_numbers(a), text_numbers(b)]).of)


def test_a_template_around_both_splits_changes_nothing():
    train, dev = sentences(30, length=4), sentences(4, length=4)
    dev = [*dev, train[3], changed(train[4])]
    seen = related([text_numbers(framed(train))], [text_numbers(framed(dev))])
    assert seen.tolist() == [False] * 4 + [True, True]
    unlike = related([text_numbers(framed(train))], [text_numbers([*framed(dev), "the cat sleeps"])])
    assert unlike.tolist() == [True] * 6 + [False]  # not all texts have the template


def test_what_a_few_or_not_all_texts_share_is_compared():
    texts = framed(sentences(30, length=4))
    assert find_groups([text_numbers(texts)]).near == 0
    assert find_groups([text_numbers(texts)], frames=False).near == 30
    assert find_groups([text_numbers(texts[:19])]).near == find_groups([text_numbers(texts[:19] * 2)]).near == 19
    assert find_groups([text_numbers([*texts, "the cat sleeps"])]).near == 30
    assert find_groups([text_numbers(texts[:1] * 30)]).count == 1


def test_a_chain_does_not_swallow_everything():
    texts = sentences(400)
    chain = find_groups([text_numbers(texts), text_numbers([*texts[1:], texts[0]])])
    assert chain.largest <= 50
    assert chain.apart >= 8
    assert find_groups([text_numbers(texts[:40]), text_numbers([*texts[1:40], texts[0]])]).count == 1


def test_examples_that_train_has_too():
    train, dev = sentences(30), sentences(5)
    dev = [*dev, train[3], changed(train[4]), changed(train[5]) + " and so much more of it here"]
    assert related([text_numbers(train)], [text_numbers(dev)]).tolist() == [False] * 5 + [True, True, False]
    other = sentences(8)
    both = related([text_numbers(train), text_numbers(sentences(30))], [text_numbers(other), text_numbers(dev)])
    assert both.tolist() == [False] * 5 + [True, True, False]  # a sentence of a pair, on whichever side


def test_pieces_that_lie_anywhere():
    texts = text_numbers(sentences(20))
    order = np.random.default_rng(1).permutation(20)
    mixed = TextNumbers(texts.values, texts.start[order], texts.length[order])
    start, length = (np.append(each, each[:3]) for each in (mixed.start, mixed.length))
    again = TextNumbers(texts.values, start, length)
    assert find_groups([again]).of.tolist() == [*range(20), 0, 1, 2]
    np.testing.assert_array_equal(find_groups([again]).of, find_groups([again]).of)


def test_numbers_may_be_small():
    """As those of pieces: 0 is a number like any other."""
    words = np.random.default_rng(0).integers(1, 500, size=(40, 12))
    words[:, 3] = 0
    words[20:] = words[:20]
    words[20:, 7] = 501
    texts = TextNumbers(words.reshape(-1), 12 * np.arange(40), np.full(40, 12))
    assert find_groups([texts]).of.tolist() == [*range(20), *range(20)]


def test_groups_of_two_kinds():
    assert merged(None, None) is None
    assert merged(np.array([3, 3, 4]), None).tolist() == [3, 3, 4]
    assert merged(np.array([0, 0, 1, 2, 3]), np.array([5, 6, 6, 7, 8])).tolist() == [0, 0, 0, 1, 2]


def test_many_texts_take_seconds():
    rng = np.random.default_rng(0)
    words = rng.integers(20_000, size=(20_000, 12))
    words[10_000:] = words[:10_000]
    words[10_000:, 5] = -1
    texts = TextNumbers(words.reshape(-1), 12 * np.arange(20_000), np.full(20_000, 12))
    started = time.perf_counter()
    found = find_groups([texts])
    assert time.perf_counter() - started < 10  # measured .6
    assert found.count < 10_050
    assert found.largest == 2


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_find(n):
    assert find_groups([text_numbers(sentences(n))]).of.tolist() == [0] * n


def test_domains_made_after_one_pattern_are_wholes():
    words = [str(w) for w in WORDS]

    def made(i, j):
        a, b, c = (words[(97 * i + 31 * j + k) % 3000] for k in (0, 1000, 2000))
        return f"the {a} that the p{i} {b} saw q{i} was r{i} {c} today"

    texts = [made(i, j) for i in range(12) for j in range(10)]
    domains = np.repeat([f"d{i}" for i in range(12)], 10)
    numbers = [text_numbers(texts)]
    assert find_groups(numbers).count > 12  # two or three words differ: no near copies
    found = find_groups(numbers, domains)
    np.testing.assert_array_equal(found.of, np.repeat(np.arange(12), 10))
    assert found.domain == 120
    genres = find_groups([text_numbers(sentences(120))], domains)  # the control: domains of unlike texts
    assert (genres.count, genres.domain) == (120, 0)
    assert find_groups(numbers, np.zeros(120)).count == find_groups(numbers).count  # nothing to hold them against
