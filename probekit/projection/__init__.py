"""Maps: the vectors of all layers of one or more models as points in the plane.

::

    from probekit.projection import project
    first, second = project([pretrained_layers, fine_tuned_layers])   # functions that return (n, d) arrays
    first.xy[3]                                                       # (n, 2), layer 3

Arrays in, arrays out. Neighbouring layers, and models at the same layer, are turned so that a point moves as little as
possible; nothing is scaled.
"""

from probekit.projection.alignment import rotation
from probekit.projection.clusters import clusters
from probekit.projection.discriminant import Discriminant, fit_discriminant
from probekit.projection.maps import METHODS, Map, project
from probekit.projection.neighbourhoods import Faithfulness, faithfulness
from probekit.projection.plane import Plane, principal_plane

__all__ = [
    "METHODS",
    "Discriminant",
    "Faithfulness",
    "Map",
    "Plane",
    "clusters",
    "faithfulness",
    "fit_discriminant",
    "principal_plane",
    "project",
    "rotation",
]
