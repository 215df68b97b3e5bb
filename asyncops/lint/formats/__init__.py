"""Output formats, one a file. Each has ``render(result, page) -> str``; ``registry.py`` lists them."""
