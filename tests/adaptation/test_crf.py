"""The conditional random field against every path of short sentences."""

from __future__ import annotations

from itertools import product

import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from probekit.adaptation.heads.crf import CRF, SCHEMES, allowed_transitions, scheme_of
from probekit.adaptation.heads.head import IGNORED
from probekit.errors import UsageError

BIO = ("O", "B-PER", "I-PER", "B-LOC")


def some(seed, lengths, k, *, scale=2.0, ends=True, allowed=None):
    """A field with random scores, logits (b, t, k) with NaN at padding, and their mask."""
    rng = torch.Generator().manual_seed(seed)
    crf = CRF(k, allowed=allowed, include_start_end_transitions=ends)
    for p in crf.parameters():
        p.data = scale * torch.randn(p.shape, generator=rng)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    logits = scale * torch.randn(*mask.shape, k, generator=rng)
    return crf, logits.masked_fill(~mask.unsqueeze(-1), torch.nan), mask


def scores(crf):
    """Transitions, start and end scores in float64."""
    k = len(crf.transitions)
    ends = (crf.start_transitions, crf.end_transitions)
    found = [crf.transitions, *(torch.zeros(k) if e is None else e for e in ends)]
    return [x.detach().double().numpy() for x in found]


shapes = st.tuples(
    st.integers(0, 2**31), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 4), st.booleans()
)


@settings(max_examples=30, deadline=None)
@given(shape=shapes, scale=st.sampled_from([0.1, 2.0, 30.0]), data=st.data())
def test_likelihood_is_the_sum_over_all_paths(shape, scale, data):
    seed, lengths, k, ends = shape
    crf, logits, mask = some(seed, lengths, k, scale=scale, ends=ends)
    words = st.lists(st.integers(-1, k - 1), min_size=mask.shape[1], max_size=mask.shape[1])
    tags = torch.tensor([data.draw(words) for _ in lengths])
    tags[tags < 0] = IGNORED  # a word that may have any tag
    found = crf.log_likelihood(logits, tags, mask)
    for i, n in enumerate(lengths):
        x, y = logits[i, :n].double().numpy(), tags[i, :n].tolist()
        given, every = ([s for _, s in naive.crf_paths(x, *scores(crf), t)] for t in (y, None))
        assert crf.log_partition(logits, mask)[i].item() == pytest.approx(logsumexp(every), rel=1e-9, abs=1e-9)
        wanted = logsumexp(given) - logsumexp(every)
        assert found[i].item() == pytest.approx(wanted, rel=1e-6, abs=1e-6)  # float32 has 1.2e-7


@settings(max_examples=20, deadline=None)
@given(shape=shapes)
def test_viterbi_finds_the_best_path(shape):
    seed, lengths, k, ends = shape
    crf, logits, mask = some(seed, lengths, k, ends=ends)
    paths, score = crf.viterbi(logits, mask)
    for i, n in enumerate(lengths):
        best, value = max(naive.crf_paths(logits[i, :n].numpy(), *scores(crf)), key=lambda p: p[1])
        assert paths[i].tolist() == [*best, *[IGNORED] * (mask.shape[1] - n)]
        assert score[i].item() == pytest.approx(value, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", range(5))
def test_viterbi_keeps_to_the_scheme(scheme, seed):
    labels = ["O", *(f"{p}-{kind}" for kind in "XY" for p in scheme if p in "BIULEMS")]
    k, lengths = len(labels), (4, 1, 2, 3)
    crf, logits, mask = some(seed, lengths, k, allowed=allowed_transitions(scheme, labels))
    free = CRF(k)
    free.load_state_dict(crf.state_dict())
    paths = crf.viterbi(logits, mask)[0]
    for i, n in enumerate(lengths):
        every = naive.crf_paths(logits[i, :n].numpy(), *scores(crf))
        kept = [(s, p) for p, s in every if naive.scheme_allows(scheme, [labels[y] for y in p])]
        assert paths[i, :n].tolist() == list(max(kept)[1])
    assert not torch.equal(paths, free.viterbi(logits, mask)[0])  # the constraints do something
    torch.testing.assert_close(free.log_partition(logits, mask), crf.log_partition(logits, mask))  # but not to this


@pytest.mark.parametrize("scheme", SCHEMES)
def test_allowed_transitions_allow_what_the_scheme_does(scheme):
    labels = ["O", *(f"{p}-{kind}" for kind in "XY" for p in scheme if p in "BIULEMS")]
    ok, k = allowed_transitions(scheme, labels), len(labels)
    for path in product(range(k), repeat=3):
        steps = all(ok[a, b] for a, b in zip((k, *path), (*path, k + 1), strict=True))
        assert steps == naive.scheme_allows(scheme, [labels[y] for y in path])


def test_a_sentence_that_no_path_fits_still_gets_one():
    labels = ["B-X", "I-X", "L-X"]  # no word alone, and no O
    crf, logits, mask = some(0, (1, 3), 3, allowed=allowed_transitions("BIOUL", labels))
    paths, _ = crf.viterbi(logits, mask)
    assert 0 <= paths[0, 0] < 3
    assert paths[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("ends", [True, False])
def test_gradients_by_differences(ends):
    crf, logits, mask = some(3, (3, 1, 4), 3, ends=ends)
    logits = logits.nan_to_num().double().requires_grad_()
    tags = torch.tensor([[0, IGNORED, 2, 0], [1, 0, 0, 0], [2, 2, 0, 1]])
    crf = crf.double()

    def likelihood(logits, *parameters):
        names = [name for name, _ in crf.named_parameters()]
        return torch.func.functional_call(crf, dict(zip(names, parameters, strict=True)), (logits, mask, tags))

    crf.forward = lambda logits, mask, tags: crf.log_partition(logits, mask) - crf.log_partition(logits, mask, tags)
    assert torch.autograd.gradcheck(likelihood, (logits, *crf.parameters()))


def test_padding_and_company_change_nothing():
    crf, logits, mask = some(5, (4, 2, 3), 4)
    tags = torch.arange(mask.numel()).view(mask.shape) % 4
    alone = [
        crf.log_likelihood(logits[i, None, :n], tags[i, None, :n], mask[i, None, :n]) for i, n in enumerate((4, 2, 3))
    ]
    wide = torch.nn.functional.pad(logits, (0, 0, 0, 3), value=torch.inf)
    more = torch.nn.functional.pad(mask, (0, 3))
    found = crf.log_likelihood(wide, torch.nn.functional.pad(tags, (0, 3), value=IGNORED), more)
    torch.testing.assert_close(found, torch.cat(alone), rtol=0, atol=0)
    torch.testing.assert_close(crf.viterbi(wide, more)[0][:, :4], crf.viterbi(logits, mask)[0])


def test_a_word_without_a_piece_is_one_of_which_nothing_is_known():
    crf, logits, mask = some(5, (4, 3), 3)
    gap, tags = mask.clone(), torch.tensor([[0, IGNORED, 2, 1], [1, 1, 0, IGNORED]])
    gap[0, 1] = False
    blank = logits.clone()
    blank[0, 1] = 0
    assert torch.equal(crf.log_likelihood(logits, tags, gap), crf.log_likelihood(blank, tags, mask))
    paths, score = crf.viterbi(logits, gap)
    wanted, best = crf.viterbi(blank, mask)
    assert torch.equal(paths, wanted.where(gap, IGNORED))
    assert torch.equal(score, best)


def test_scores_far_apart():
    """Scores of hundreds of nats neither overflow nor lose the best path."""
    crf, logits, mask = some(1, (5,), 3, scale=150.0)
    path, score = max(naive.crf_paths(logits[0].double().numpy(), *scores(crf)), key=lambda p: p[1])
    assert crf.log_partition(logits, mask).item() == pytest.approx(score, abs=1e-6)
    assert crf.log_likelihood(logits, torch.tensor([path]), mask).item() == pytest.approx(0, abs=1e-6)


def test_loss_is_the_mean_over_tagged_sentences():
    crf, logits, mask = some(2, (4, 2, 3), 4)
    tags = torch.arange(mask.numel()).view(mask.shape) % 4
    tags[1] = IGNORED
    logits = logits.nan_to_num().requires_grad_()
    loss = crf.loss(logits, tags, mask)
    assert loss.item() == pytest.approx(-crf.log_likelihood(logits, tags, mask)[[0, 2]].mean().item(), rel=1e-6)
    loss.backward()
    assert logits.grad[0].any()
    assert not logits.grad[1].any()
    assert crf.loss(logits, torch.full_like(tags, IGNORED), mask).item() == 0


def test_half_precision():
    """Under autocast the recursions stay in float64."""
    crf, logits, mask = some(2, (4, 2), 4)
    tags = torch.arange(mask.numel()).view(mask.shape) % 4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = crf.log_likelihood(logits, tags, mask)
    torch.testing.assert_close(found, crf.log_likelihood(logits, tags, mask), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        (BIO, "BIO"),
        (("O", "I-PER"), "IOB1"),
        (("O", "B-X", "I-X", "L-X", "U-X"), "BIOUL"),
        (("O", "B-X", "I-X", "E-X", "S-X"), "BIOES"),
        (("B-X", "M-X", "E-X", "S-X"), "BMES"),
        (("NOUN", "VERB", "X"), None),
        (("O",), None),
        (("O", "B-X", "X-I"), None),
    ],
)
def test_schemes_by_name(labels, scheme):
    assert scheme_of(labels) == scheme


def test_unknown_scheme():
    with pytest.raises(UsageError, match="unknown tagging scheme 'BOI'; the schemes are BIO"):
        allowed_transitions("BOI", BIO)
    assert np.array_equal(allowed_transitions("BIO", BIO)[0], [True, True, False, True, False, True])
