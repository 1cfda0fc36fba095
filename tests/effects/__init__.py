"""State that a function reads or writes, by where it does so: compiled as eager, in every cell.

Rows are kinds of state (`kinds_*`), columns are ways to reach it (`columns`). A cell is a program,
written as text (`text`), run both ways with the state changed between calls (`cells`), and in
processes that find what another one has stored (`processes`).
"""
