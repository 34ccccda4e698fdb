"""The version of probekit: of the distribution, of caches and of evidence cards."""

VERSION = "0.2.0.dev0"
