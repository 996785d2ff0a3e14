"""Data -> text, JSON, Markdown, Mermaid. Everything here is a function of data that was computed before."""
