"""`python -m tests.machines`: the tests as other machines would run them."""
