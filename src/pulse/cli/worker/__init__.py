"""How is a worker process started, run, reloaded and stopped?"""
