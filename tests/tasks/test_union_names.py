"""Names of many tasks at once."""

from probekit.files import cache_path
from probekit.tasks import load_task


def test_a_name_longer_than_a_file_may_have():
    name = "+".join(["grammar:sentiment", "grammar:acceptability"] * 8)
    assert len(name) > 255
    assert len(load_task(name).split("dev")) == sum(len(load_task(part).split("dev")) for part in set(name.split("+")))
    assert len(cache_path(name, "dev", "m", "0" * 32).name) < 160
