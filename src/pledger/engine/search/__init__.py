"""Finding runs: the language of filters, what its names mean, ready-made views, and lists in pages.

text         a filter as it is written: sqlglot's tree, its words in their places
meaning      from that tree to the port's: which names there are, what they are compared with
views        filters that are ready made
pages        lists, one page after the other
"""
