"""Ways to adapt a model by few weights, and changes of its architecture."""
