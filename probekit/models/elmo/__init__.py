"""ELMo (Peters et al. 2018)."""

from probekit.models.kinds import Kind

__all__ = ["KIND"]

KIND = Kind(
    load="probekit.models.elmo.encoder:load_elmo",
    reader="probekit.models.elmo.characters:character_reader",
    model="probekit.models.elmo.model",
    stateful=True,
)
