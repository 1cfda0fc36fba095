"""Forward mode: how tangents go through ops (`rules`), and where they are kept (`level`)."""
