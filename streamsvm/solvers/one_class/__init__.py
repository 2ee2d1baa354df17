"""The linear one-class problem: the point of a reduced hull that is nearest to the origin."""
