"""destination."""
