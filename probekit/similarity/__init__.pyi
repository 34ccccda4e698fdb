from .layer_pairs import PairValues as PairValues
from .measures import (
    cca as cca,
)
from .measures import (
    cka as cka,
)
from .measures import (
    cka_rbf as cka_rbf,
)
from .measures import (
    eigenspace_overlap as eigenspace_overlap,
)
from .measures import (
    knn_jaccard as knn_jaccard,
)
from .measures import (
    knn_rank as knn_rank,
)
from .measures import (
    linear_predictivity as linear_predictivity,
)
from .measures import (
    minibatch_cka as minibatch_cka,
)
from .measures import (
    mutual_knn as mutual_knn,
)
from .measures import (
    procrustes as procrustes,
)
from .measures import (
    pwcca as pwcca,
)
from .measures import (
    rsa as rsa,
)
from .measures import (
    svcca as svcca,
)
from .options import Similarity as Similarity
from .options import SimilarityOptions as SimilarityOptions
