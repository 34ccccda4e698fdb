"""Skip-thoughts (Kiros et al. 2015)."""

from probekit.models.kinds import Kind

__all__ = ["KIND"]

KIND = Kind(
    load="probekit.models.skip_thoughts.encoder:load_skip_thoughts",
    reader="probekit.models.skip_thoughts.encoder:word_reader",
    model="probekit.models.skip_thoughts.model",
    pooling="last",  # the published vector
)
