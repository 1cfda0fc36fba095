"""Explanations, the ledger, budgets and dumps."""
