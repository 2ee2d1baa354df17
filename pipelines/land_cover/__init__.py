"""The story of land cover: a forest type told by terrain, in places that were never seen."""
