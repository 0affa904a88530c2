# How Sphinx makes the site (scripts/site), from the root of the tree.
project = "shardgrad"
author = "the shardgrad developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
root_doc = "docs/site/index"
exclude_patterns = ["build", "learn", "runs", "shared", ".*", "**/.*"]
include_patterns = ["*.md", "docs/**", "tutorials/**/*.md", "tutorials/notebooks/*.ipynb", "bench/results/*.md"]
html_theme = "furo"
html_title = "shardgrad"
html_extra_path = []
html_copy_source = False
nb_execution_mode = "off"  # a test runs them
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "signature"
autosummary_generate = True
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
