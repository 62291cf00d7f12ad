"""Maps: readers of every form, the rules of the road, and the way from a table of ways to a network."""
