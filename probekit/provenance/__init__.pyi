from .clean import clean as clean
from .inventory import results as results
from .reproduce import reproduce as reproduce
