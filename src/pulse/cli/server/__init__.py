"""How is a server process started, run and stopped?"""
