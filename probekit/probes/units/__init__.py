"""Which units of a layer hold a property: rankings of units, and what the first of them hold."""
