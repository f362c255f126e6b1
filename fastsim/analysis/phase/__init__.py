"""Where service holds over two axes."""
