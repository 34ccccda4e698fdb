"""The bidirectional LSTM of Bowman et al. (2018), trained from nothing."""

from probekit.models.kinds import Kind

__all__ = ["KIND"]

KIND = Kind(
    load="probekit.models.bilstm.encoder:load_bilstm",
    reader="probekit.models.bilstm.reader:bilstm_reader",
    model="probekit.models.bilstm.model",
)
