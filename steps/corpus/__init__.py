"""Text from anywhere as documents: deduplicated, split, each with where it came from."""

from steps.corpus.step import CorpusConfig, FileSource, InterpreterSource, collect

__all__ = ["CorpusConfig", "FileSource", "InterpreterSource", "collect"]
