"""Files: the only place that fsyncs, lists, links and deletes."""
