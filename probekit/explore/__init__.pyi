from .build import explore as explore
from .options import ExploreOptions as ExploreOptions
from .view import Selection as Selection
from .view import View as View
