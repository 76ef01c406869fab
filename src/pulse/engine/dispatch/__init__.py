"""The dispatch of jobs to the workers that have a stream to this server."""
