from .conversion import convert as convert
from .loading import load_encoder as load_encoder
from .new import new_encoder as new_encoder
from .sites.report import prove_sites as prove_sites
