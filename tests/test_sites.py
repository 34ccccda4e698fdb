"""Sites: one way to write them, one to read them, one rule for how they are asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probekit import sites
from probekit.errors import UsageError
from probekit.sites import FINAL_NORM, Site, choose, choose_all, layer_list, residual_stream, site_names

NAMES = st.builds(str.__add__, st.sampled_from("aZ"), st.text("bY_09", max_size=9))
NUMBERS = st.integers(0, 200)
GPT2 = residual_stream(12, final_norm=True)


@given(st.one_of(st.builds(Site, NAMES, st.none() | NUMBERS), st.builds(Site, st.just("resid_post"), NUMBERS)))
def test_what_is_written_is_read_again(site):
    assert Site.parse(str(site)) == site
    assert Site.parse(site) is site


def test_how_sites_are_written():
    assert [*map(str, residual_stream(2, final_norm=True))] == ["0", "1", "2", "final_norm"]
    assert str(Site("attn_out", 2)) == "attn_out.2"
    assert Site.parse("resid_post.2") == Site.parse(3) == Site.parse("3")  # by the block that it leaves


@pytest.mark.parametrize("told", ["", "-1", "a/b", "3.5", "attn_out.x", "resid_post", ".", "../x", "1e3", "²", "a.-1"])
def test_what_is_no_site(told):
    with pytest.raises(UsageError):
        Site.parse(told)


@pytest.mark.parametrize(
    ("told", "name"),
    [(0, "0"), ("12", "12"), (-1, "12"), ("-13", "0"), ("final_norm", "final_norm"), (FINAL_NORM,) * 2],
)
def test_layers_are_asked_for(told, name):
    assert choose(told, GPT2) == Site.parse(name)


@pytest.mark.parametrize("told", [13, -14, "final", "attn_out.0", "x y", -0.5])
def test_layers_that_are_not_there(told):
    with pytest.raises(UsageError, match="c.h5 has no layer .*; it has 0, 1, 2, .*, 12, final_norm"):
        choose(told, GPT2, "c.h5")


def test_several_layers():
    assert choose_all(None, GPT2) == GPT2
    assert choose_all([-1, "12", 0], GPT2) == (Site.parse(12), Site.parse(0))
    with pytest.raises(UsageError, match="the list of layers is empty; the model has 0, "):
        choose_all([], GPT2)


def test_ranges_of_layers():
    assert layer_list("0, 4-6,final_norm,-1") == ("0", 4, 5, 6, "final_norm", "-1")
    assert layer_list([3, "7-7", FINAL_NORM]) == (3, 7, FINAL_NORM)
    assert [*map(str, choose_all("11-12,final_norm", GPT2))] == ["11", "12", "final_norm"]
    assert choose_all(["1-3"], GPT2) == choose_all([1, 2, 3], GPT2)
    with pytest.raises(UsageError, match=r"layers 6-4: a range begins with the lower layer; write 4-6\."):
        layer_list("6-4")
    with pytest.raises(UsageError, match="has no layer 13"):
        choose_all("12-13", GPT2)
    with pytest.raises(UsageError, match="has no layer '4-'"):
        choose_all("4-", GPT2)


def test_slices_of_layers():
    assert layer_list("8:24:4") == (8, 12, 16, 20)
    assert layer_list("0:3,final_norm") == (0, 1, 2, "final_norm")
    assert [*map(str, choose_all("0:12:6,12", GPT2))] == ["0", "6", "12"]
    for empty in ("4:4", "6:4", "0:4:0"):
        with pytest.raises(UsageError, match="a slice is FIRST:STOP:STEP with FIRST below STOP, such as 8:24:4"):
            layer_list(empty)


def test_names_of_sites():
    assert site_names("attn_out, z.3") == site_names(["attn_out", "z.3"]) == ("attn_out", "z.3")
    assert all(site_names(name) == (name,) for name in sites.NAMES if name != "attn_probs")
    for wrong in ("atn_out", "attn_out.", "attn_out.x", "final_norm.1", "z.-1", "", "3"):
        with pytest.raises(UsageError, match="there is no site "):
            site_names(wrong)
    with pytest.raises(UsageError, match="the list of sites is empty"):
        site_names([])
    with pytest.raises(UsageError, match="is not stored"):
        site_names("attn_probs.3")
