"""Programs in stages: a graph with sizes that only a run tells."""
