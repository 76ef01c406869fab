"""Which connected worker gets which job: what a server does for workers that hold a stream."""
