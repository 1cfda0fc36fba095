"""What was compiled, to look at: dumps of every stage, and pages."""
