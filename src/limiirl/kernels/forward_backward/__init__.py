"""Forward and backward passes over the edges of a graph, in linear and log arithmetic."""
