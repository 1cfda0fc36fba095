"""L5: graph to graph, one file per pass.

All passes but `functionalize` take functional graphs: no node writes into memory, and what inputs
hold afterwards stands in `graph.writes`. Views are ordinary nodes. A pass keeps the inputs and the
number and order of the outputs, and may share Node and Value objects with the graph it was given,
which it leaves as it was: both are never changed once made.

| pass | what it does |
|---|---|
| `functionalize` | takes mutation out: what is written becomes a new value |
| `dead` | drops nodes that nobody reads |
| `cse` | computes the same thing once |
| `fold` | computes what is known before the program runs |
| `simplify` | rewrites by a table of rules, each with the reason why it is right |
| `decompose` | puts the ops of a body in place of a composite |
| `layout` | chooses the memory order of images around convolutions |
| `partition` | cuts a joint graph into forward and backward, choosing what is kept between them |

`rewrite` holds what they share, `interpret` runs a graph node by node.
"""
