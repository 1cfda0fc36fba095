"""Net a: random Python programs over sizes, compiled against eager at eight sizes."""
