from .edge import edge as edge
from .estimate import Information as Information
from .estimators import mutual_information as mutual_information
from .options import InformationEstimator as InformationEstimator
