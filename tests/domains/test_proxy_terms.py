"""The proxy A-distance of real counts, which are sparse and of 64-bit indices."""

from probekit.domains import choose_terms, count, read_texts
from probekit.domains.options import PROXY
from probekit.domains.rows import domain_rows


def test_the_proxy_reads_counted_text():
    def domain(name, word):
        return count(name, read_texts([f"{word} number {i % 7} and more" for i in range(60)], name))

    rows = domain_rows(choose_terms([domain("sea", "wave"), domain("land", "hill")]), [PROXY])
    (row,) = rows.to_dict("records")
    assert row["metric"] == PROXY
    assert row["value"] == 2  # one word tells them apart
