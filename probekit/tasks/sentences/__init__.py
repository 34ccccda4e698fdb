"""The ten sentence tasks of Conneau et al. 2018 made from any treebank, of dependencies or of constituents."""
