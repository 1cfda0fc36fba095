"""`python -m tests.shuffled`: does a test depend on which others ran before it?"""
