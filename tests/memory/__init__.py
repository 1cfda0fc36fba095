"""Memory: what `estimate_memory` says against what is measured; running out of it."""
