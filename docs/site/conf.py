# How Sphinx makes the site (scripts/site), from a copy of the tree.
project = "shardgrad"
author = "the shardgrad developers"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/**", "tutorials/*.md", "tutorials/*/README.md", "tutorials/notebooks/*.ipynb", "bench/results/*.md"]
html_theme = "furo"
html_title = "shardgrad"
html_copy_source = False
html_show_sphinx = False
nb_execution_mode = "off"  # a test runs them
myst_heading_anchors = 4
autodoc_typehints = "signature"
# Links to sources and folders are made to work by scripts/site; our headings begin at any level.
suppress_warnings = ["myst.xref_missing", "myst.header", "misc.highlighting_failure"]
